// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace trireme::detail {

/// What is still to be said when the program ends by exit(0), which destroys none of the groups
/// that its functions hold. Another status says enough: whoever started the ranks ends the others.
/// `say` runs on the thread that calls exit(), before whatever was registered earlier; what it
/// throws is dropped. Not in a child of a fork. Threads: any.
class LeaveAtExit {
 public:
  explicit LeaveAtExit(std::function<void()> say);
  /// `say` is not running any more.
  ~LeaveAtExit();
  LeaveAtExit(const LeaveAtExit&) = delete;
};

}  // namespace trireme::detail
