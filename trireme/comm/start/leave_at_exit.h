// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace trireme::detail {

/// Runs `say` when the program ends by exit(0), which destroys none of the groups that its
/// functions hold. Any other status needs no message: the launcher ends the other ranks. `say` runs
/// on the thread that calls exit(), before anything registered earlier; its exceptions are dropped.
/// It does not run in a forked child. Thread-safe.
class LeaveAtExit {
 public:
  explicit LeaveAtExit(std::function<void()> say);
  /// `say` is no longer running after this.
  ~LeaveAtExit();
  LeaveAtExit(const LeaveAtExit&) = delete;
};

}  // namespace trireme::detail
