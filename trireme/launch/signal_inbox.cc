// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/signal_inbox.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "trireme/base/check.h"

namespace trireme::launch {

SignalInbox::SignalInbox(const std::vector<int>& signals) {
  sigset_t read;
  ::sigemptyset(&read);
  for (int n : signals) {
    struct sigaction action {};
    ::sigaction(n, nullptr, &action);
    if (n == SIGHUP && action.sa_handler == SIG_IGN) continue;
    handled_.push_back(n);
    ::sigaddset(&read, n);
  }
  ::sigaddset(&read, SIGCHLD);
  blocked_ = read;
  ::sigaddset(&blocked_, SIGPIPE);
  if (const int code = ::pthread_sigmask(SIG_BLOCK, &blocked_, &before_))  // sets no errno
    fail<ResourceError>("cannot block signals: {}", errno_text(code));
  fd_.reset(::signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) {
    int code = errno;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    fail<ResourceError>("cannot make a signalfd: {}", errno_text(code));
  }
}

SignalInbox::~SignalInbox() {
  // What is still pending was meant for the job, which is over.
  timespec now{};
  while (::sigtimedwait(&blocked_, nullptr, &now) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalInbox::take() {
  std::vector<int> signals;
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

}  // namespace trireme::launch
