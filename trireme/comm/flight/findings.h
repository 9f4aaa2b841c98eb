// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/flight/verdict.h"

// The parts of a verdict: each looks for one kind of divergence.
namespace trireme::flight {

// A rank that had not arrived when healthy ones were asked to dump does not count as a divergence.
constexpr double kPatience = 1.0;

using Group = std::vector<const History*>;  // of one life of a group, by rank

struct Finding {
  Verdict verdict;
  double when = 0;  // when its first call was made
};

/// Finds the first number whose calls differ between ranks, or which a rank did not reach.
std::optional<Finding> judge_calls(const Group& group);
/// Finds messages whose two ends differ, or never met.
std::optional<Finding> judge_pairs(const Group& group);
/// Finds world ranks that wait for each other, each in the last call that it made.
std::optional<Finding> judge_cycle(const std::vector<Group>& groups);

inline uint64_t last_of(const std::vector<Entry>& entries) {
  return entries.empty() ? 0 : entries.back().seq;
}
/// Returns the call with this number; nullptr if it is not kept.
const Entry* find(const std::vector<Entry>& entries, uint64_t seq);
bool has_failed(const Group& group);
/// "rank 1", "rank 0 (rank 3 of the world)".
std::string name_of(const History& h);
/// "1.25 s".
std::string seconds(double s);
/// "its last was call 57, all_reduce(…) at …, 12.3 s before the dump".
std::string last_words(const History& h);

}  // namespace trireme::flight
