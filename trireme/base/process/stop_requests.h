// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace trireme {

/// Which of the signals that come to a process that saves and leaves on the first one ask it to
/// leave at once: a second SIGINT or SIGTERM (or SIGQUIT, …). SIGHUP and SIGUSR1 never do, since
/// nobody sends them in impatience: a terminal that goes away and a batch system repeat them, and
/// the SIGTERM that a batch system sends after them is the first of its kind. Safe in a signal
/// handler, and in several threads.
class StopRequests {
 public:
  /// timeout(1), some schedulers and a launcher that forwards signals send one request twice: what
  /// comes within so many milliseconds of the first SIGINT or SIGTERM is that one.
  constexpr explicit StopRequests(int64_t same_ms) : same_ms_(same_ms) {}

  /// Counts `signal`, which came at `now_ms`; true: leave at once.
  bool is_impatient(int signal, int64_t now_ms) {
    int none = 0;
    first_.compare_exchange_strong(none, signal);
    if (!insists(signal)) return false;
    int64_t asked_at_ms = kNever;
    return !asked_at_ms_.compare_exchange_strong(asked_at_ms, now_ms) &&
           now_ms - asked_at_ms >= same_ms_;
  }
  /// The first of them, or 0.
  int first() const { return first_; }

  static constexpr bool insists(int signal) { return signal != SIGHUP && signal != SIGUSR1; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
                "a handler uses them");
  int64_t same_ms_;
  std::atomic<int> first_{0};
  std::atomic<int64_t> asked_at_ms_{kNever};
};

}  // namespace trireme
