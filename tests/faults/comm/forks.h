// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"

// Processes that share this one's memory as it was.
namespace trireme::testing {

/// A process forked from this one, which has no threads; it runs `body` and never returns. Gone
/// with this object.
class Fork {
 public:
  explicit Fork(const std::function<void()>& body) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    check<ResourceError>(pid_ >= 0, "fork: {}", errno_text());
    if (pid_) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    try {
      body();
      ::_exit(0);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
  }
  ~Fork() {
    if (ended()) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Fork(const Fork&) = delete;
  bool ended() { return ended_ = ended_ || ::waitpid(pid_, &status_, WNOHANG) == pid_; }
  /// Once it has ended.
  int status() const { return status_; }
  void send(int signal) {
    if (!ended()) ::kill(pid_, signal);
  }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

inline void enter_namespace(const std::string& name) {
  UniqueFd fd(::open(("/var/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::setns(fd.get(), CLONE_NEWNET) != 0)
    fail<ResourceError>("cannot enter {}: {}", name, errno_text());
}

}  // namespace trireme::testing
