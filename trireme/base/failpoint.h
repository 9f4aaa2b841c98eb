// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"

// Named places where a test makes the program fail. Off unless TRIREME_FAILPOINTS (or
// set_failpoints) names them; then
// TRIREME_FAILPOINTS="checkpoint.before_publish=kill,comm.post@3=throw,train.step@5#1=stop":
// name[@n-th visit][#rank]=action, action = kill | exit(N) | throw | stop | sleep(MS) |
// error(ERRNO).
namespace trireme {

namespace detail {
TRIREME_API bool failpoints_armed();
/// Acts; returns an errno to pretend, or 0.
TRIREME_API int visit_failpoint(const char* name);
}  // namespace detail

/// 0, or the errno that the caller must pretend to have met (action `error`).
inline int failpoint(const char* name) {
  return detail::failpoints_armed() ? detail::visit_failpoint(name) : 0;
}

/// Replaces the set, for this process. "" disarms. Throws UsageError for text it cannot read.
TRIREME_API void set_failpoints(const std::string& text);

}  // namespace trireme
