// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// What a rank costs in memory. VmRSS is no answer: it counts the pages of peers' windows that this
// rank has read. What counts is anonymous memory (RssAnon) and the rank's own windows, which are
// shared memory.
namespace trireme {

struct MemoryUse {
  int64_t anonymous = 0;  // RssAnon of the process: all its ranks, where ranks are threads
  int64_t windows = 0;    // what the caller said: bytes of its own shared-memory windows
  int64_t file = 0;       // RssFile: libraries and mapped data, which the kernel can drop
  int64_t shared = 0;     // RssShmem: own windows and the peers' pages that were touched
  int64_t total() const { return anonymous + windows; }
};

/// Reads /proc/self/status: microseconds, however much memory there is. Zeros where /proc is
/// absent.
TRIREME_API MemoryUse memory_use(int64_t own_window_bytes = 0);
/// Proportional set size of this process (smaps_rollup): pages that n processes map count 1/n. The
/// kernel walks every page for it: for a report at the end, not for each step. -1 where the kernel
/// does not say.
TRIREME_API int64_t proportional_memory();

namespace detail {
/// "RssAnon:\t  1234 kB" → 1263616; 0 where `text` has no such line.
TRIREME_API int64_t proc_field_bytes(const std::string& text, const std::string& field);
}  // namespace detail

}  // namespace trireme
