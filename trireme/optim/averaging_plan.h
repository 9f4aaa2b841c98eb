// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// When ranks that train apart take the mean of their weights, and with whom. Pure.
namespace trireme {

/// Bytes of the buffer that weights go through when they are averaged.
constexpr int64_t kAveragedAtOnce = int64_t{32} << 20;

/// Every `period` steps neighbouring ranks average in groups of `group_size`.
struct AveragingLevel {
  int group_size = 0;
  int64_t period = 1;
};

/// The widest level that is due when `steps` have been taken apart; -1: none. Levels grow.
inline int due_level(const std::vector<AveragingLevel>& levels, int64_t steps) {
  for (size_t i = levels.size(); i-- > 0;)
    if (steps > 0 && steps % levels[i].period == 0) return static_cast<int>(i);
  return -1;
}

/// "", or what is wrong with them for so many ranks: groups must grow, each by whole groups of the
/// one below, up to all ranks, and so must periods.
inline std::string fault_of(const std::vector<AveragingLevel>& levels, int ranks) {
  if (levels.empty()) return "there is no level";
  for (size_t i = 0; i < levels.size(); ++i) {
    const auto& [size, period] = levels[i];
    if (size < 2 && ranks > 1) return "a group of " + std::to_string(size) + " averages nothing";
    if (period < 1) return "a period of " + std::to_string(period) + " steps";
    if (i == 0) continue;
    const auto& below = levels[i - 1];
    if (size <= below.group_size || size % below.group_size)
      return "groups of " + std::to_string(size) + " are not made of whole groups of " +
             std::to_string(below.group_size);
    if (period <= below.period || period % below.period)
      return "a period of " + std::to_string(period) + " is no multiple of the " +
             std::to_string(below.period) + " of smaller groups";
  }
  if (levels.back().group_size != ranks)
    return "the widest group has " + std::to_string(levels.back().group_size) + " of " +
           std::to_string(ranks) + " ranks: the last level is to be of all";
  return {};
}

}  // namespace trireme
