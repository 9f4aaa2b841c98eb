// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/planner/memory.h"

// What ranks will hold, against what their host has. Pure.
namespace trireme {

/// Of a prediction: the least that may be needed.
constexpr double kPredicted = 0.8;

/// Bytes. 0: not known, or no limit.
struct HostMemory {
  int64_t capacity = 0;   // memory and swap, or the limit of the cgroup where that is less
  int64_t available = 0;  // of it, now
  std::string limit = "this machine";  // what sets the capacity, for people
  int64_t process_limit = 0;           // of one process's address space (ulimit -v) or data (-d)
  std::string process_limit_name;      // "ulimit -v"
};

struct MemoryVerdict {
  enum class Fit {
    fits,
    tight,      // more than is available now, by the prediction
    impossible  // more than there is, whatever else is given up
  } fit = Fit::fits;
  std::string text;  // one sentence: what is needed, what there is
};

/// `ranks` of them are on the host, each in a process of its own. Predictions are within 20 % of
/// what is measured, so that only a size that is impossible with that much off is called so.
TRIREME_API MemoryVerdict judge_memory(const RankMemory& rank, int ranks, const HostMemory& host);

}  // namespace trireme
