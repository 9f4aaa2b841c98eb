// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

// Repetitions and figures of the bench. Pure.
namespace trireme::bench {

/// A round is at least this long: the kernel counts CPU time in ticks of 10 ms, and what others
/// take of this machine must show.
constexpr double kRoundSeconds = 0.02;
constexpr int64_t kFewestCalls = 3, kMostCalls = 50000;

/// Calls of the next try, when `calls` of them took `seconds`; the same number: long enough.
inline int64_t more_calls(int64_t calls, double seconds) {
  if (seconds >= kRoundSeconds || calls >= kMostCalls) return calls;
  const double factor = std::min(10.0, 1.1 * kRoundSeconds / std::max(seconds, 1e-9));
  return std::clamp(static_cast<int64_t>(std::ceil(static_cast<double>(calls) * factor)),
                    kFewestCalls, kMostCalls);
}

inline double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/// The smallest value that at least `part` of all values do not exceed.
inline double percentile(std::vector<double> v, double part) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(v.size())));
  return v[std::clamp<size_t>(rank, 1, v.size()) - 1];
}

/// Two decimals where they fit into `width` characters, else fewer, else an exponent: columns stay
/// where scripts look for them.
inline std::string fixed(double value, size_t width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text.size() <= width) return text;
  }
  return fmt::format("{:.1e}", value);
}

}  // namespace trireme::bench
