// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// When ranks that train separately average their weights, and with which others. Pure.
namespace trireme {

/// Size in bytes of the buffer in which weights are averaged.
constexpr int64_t kAveragedAtOnce = int64_t{32} << 20;

/// Every `period` steps, neighbouring ranks average in groups of `group_size`.
struct AveragingLevel {
  int group_size = 0;
  int64_t period = 1;
};

/// The widest level that is due after `steps` separate steps; -1: none. Levels are in order of
/// increasing width.
inline int due_level(const std::vector<AveragingLevel>& levels, int64_t steps) {
  for (size_t i = levels.size(); i-- > 0;)
    if (steps > 0 && steps % levels[i].period == 0) return static_cast<int>(i);
  return -1;
}

/// What is wrong with the levels for this number of ranks, or "": groups must grow from level to
/// level, each consisting of whole groups of the level below, up to all ranks; periods likewise.
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
      return "a period of " + std::to_string(period) + " is not a multiple of the " +
             std::to_string(below.period) + " of smaller groups";
  }
  if (levels.back().group_size != ranks)
    return "the widest group has " + std::to_string(levels.back().group_size) + " of " +
           std::to_string(ranks) + " ranks: the last level must have all of them";
  return {};
}

}  // namespace trireme
