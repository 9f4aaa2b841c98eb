// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

namespace trireme::launch {

/// While it lives, the given signals, SIGCHLD and SIGPIPE are blocked in this thread (and in
/// threads it starts), and all but SIGPIPE can be read from fd(), by this thread. What the kernel
/// gives to another thread, which was there before, comes here too. SIGHUP that was ignored (nohup)
/// stays ignored. One at a time in a process.
class TRIREME_API SignalInbox {
 public:
  explicit SignalInbox(const std::vector<int>& signals);
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  int fd() const { return fd_.get(); }
  /// What came since the last call, SIGCHLD among it. Never waits.
  std::vector<int> take();
  /// What workers start with: the mask from before, and default dispositions for these.
  const sigset_t& mask_before() const { return before_; }
  const std::vector<int>& handled() const { return handled_; }

 private:
  UniqueFd fd_;
  sigset_t before_{};
  sigset_t blocked_{};
  std::vector<int> handled_;
  std::vector<std::pair<int, struct sigaction>> actions_before_;
};

}  // namespace trireme::launch
