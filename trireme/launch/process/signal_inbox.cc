// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/signal_inbox.h"

#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

std::atomic<pid_t> inbox_thread{0};
static_assert(std::atomic<pid_t>::is_always_lock_free, "a handler reads it");

// Runs in threads that do not block the signal: a math library's, which it starts while it loads,
// or those of a program that calls us late. The signal becomes one of the inbox's thread alone.
void pass_to_inbox(int signal) {
  const int saved = errno;
  ::syscall(SYS_tgkill, ::getpid(), inbox_thread.load(), signal);
  errno = saved;
}

}  // namespace

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
  inbox_thread = static_cast<pid_t>(::syscall(SYS_gettid));
  std::vector<int> passed = handled_;
  passed.push_back(SIGCHLD);
  for (int n : passed) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = pass_to_inbox;
    action.sa_flags = SA_RESTART;
    if (::sigaction(n, &action, &before) == 0) actions_before_.emplace_back(n, before);
  }
}

SignalInbox::~SignalInbox() {
  // What is still pending was meant for the job, which is over.
  timespec now{};
  while (::sigtimedwait(&blocked_, nullptr, &now) > 0) {
  }
  for (const auto& [n, before] : actions_before_) ::sigaction(n, &before, nullptr);
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
