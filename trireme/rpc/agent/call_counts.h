// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/rpc/metrics.h"

namespace trireme::rpc::detail {

/// Times in classes that are an eighth of their power of two wide, in nanoseconds. Pure.
inline constexpr size_t kTimeClasses = 8 * 64;
constexpr size_t class_of_time(uint64_t ns) {
  if (ns < 8) return static_cast<size_t>(ns);
  const int above = std::bit_width(ns) - 4;  // bits below the four that count
  return static_cast<size_t>(8 * above) + static_cast<size_t>(ns >> above);
}
/// The longest time of its class.
constexpr uint64_t longest_of_class(size_t index) {
  if (index < 16) return index;
  const size_t above = index / 8 - 1;
  return ((uint64_t{8} + index % 8 + 1) << above) - 1;
}
/// The time that `part` (0 to 1) of them took at most, in seconds.
double time_of_part(const std::vector<uint64_t>& of_class, double part);

/// Counts the calls of one method in one direction. Threads: any; no lock, some tens of nanoseconds
/// a call, most of which is reading the clock.
class CallCounts {
 public:
  void began() { begun_.fetch_add(1, std::memory_order_relaxed); }
  void ended(uint64_t took_ns, bool well, uint64_t argument_bytes, uint64_t result_bytes) {
    constexpr auto relaxed = std::memory_order_relaxed;
    if (!well) errors_.fetch_add(1, relaxed);
    argument_bytes_.fetch_add(argument_bytes, relaxed);
    result_bytes_.fetch_add(result_bytes, relaxed);
    times_[class_of_time(took_ns)].fetch_add(1, relaxed);
  }
  CallMetrics now() const;

 private:
  std::atomic<uint64_t> begun_{0}, errors_{0}, argument_bytes_{0}, result_bytes_{0};
  std::array<std::atomic<uint64_t>, kTimeClasses> times_{};
};

/// Those of a worker, as long as it lives. Methods that it makes calls of are known by their first
/// one, so that what a peer merely offers costs nothing.
class MethodCounts {
 public:
  CallCounts& made(const std::string& method) { return of(method, 0); }
  CallCounts& answered(const std::string& method) { return of(method, 1); }
  /// By name; those of which there was a call.
  std::vector<MethodMetrics> now() const;

 private:
  CallCounts& of(const std::string& method, size_t direction);

  mutable std::mutex mutex_;
  std::map<std::string, std::array<std::unique_ptr<CallCounts>, 2>> all_;  // stay
};

}  // namespace trireme::rpc::detail
