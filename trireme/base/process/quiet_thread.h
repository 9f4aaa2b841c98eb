// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace trireme {

/// While it lives, threads that this one starts inherit a mask of all signals but those of a
/// thread's own faults: the program's signals go to the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t most;
    ::sigfillset(&most);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) ::sigdelset(&most, fault);
    ::pthread_sigmask(SIG_SETMASK, &most, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// A thread to which no signal of the program's is delivered. std::system_error.
template <class Body>
std::thread quiet_thread(Body body) {
  const SignalsBlocked for_the_new_thread;
  return std::thread(std::move(body));
}

}  // namespace trireme
