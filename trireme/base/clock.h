// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

// Time that only goes forward. Wall-clock times are for people to read and are never compared
// across hosts.
namespace trireme {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;

/// Nanoseconds since 1970, for people and other systems to read.
inline int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(Duration d) {
    auto now = Clock::now();
    return Deadline(d >= Clock::time_point::max() - now ? Clock::time_point::max() : now + d);
  }
  static Deadline at(Clock::time_point at) { return Deadline(at); }
  /// time_point::max(): never.
  Clock::time_point when() const { return at_; }
  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= at_; }
  /// The time that is left, never negative.
  Duration remaining() const {
    if (is_never()) return Duration::max();
    return std::max(Duration::zero(), at_ - Clock::now());
  }
  /// For poll(2): milliseconds left, rounded up, at most `cap`.
  int poll_ms(int cap = 100) const {
    if (is_never()) return cap;
    auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return static_cast<int>(std::min<int64_t>(ms, cap));
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

inline double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

/// A counter that costs a few nanoseconds and is the same for all threads and processes of one
/// host: the time-stamp counter where there is one, else nanoseconds. Its rate is not known here;
/// compare it with now_ns() over an interval to find it.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count());
#endif
}

/// Nanoseconds of the steady clock; comparable between processes of one host.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

}  // namespace trireme
