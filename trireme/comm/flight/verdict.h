// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/flight/history.h"

// Determines which rank diverged first, from what ranks recorded. Pure functions.
namespace trireme::flight {

struct Verdict {
  enum Kind : uint8_t {
    agree,            // no divergence
    different_call,   // a rank made a different call with the same number
    different_pair,   // the two ends of a message differ
    cycle,            // ranks wait for each other in different calls
    missing_call,     // a rank did not make a call that others wait for
    missing_message,  // a send or recv without its other end
  } kind = agree;
  std::string sentence;
  std::string group;
  int rank = -1;                    // world rank that diverged; for agree: the slowest
  uint64_t seq = 0;                 // the number of the call
  std::vector<std::string> absent;  // "rank 2 of group world": no history of it
};

/// Judges the histories of one job, at most one of each rank in each life of a group.
TRIREME_API Verdict judge(const std::vector<History>& histories);

TRIREME_API const char* name_of(Verdict::Kind kind);
/// "all_reduce(float32[10], sum) at train.cc:40".
TRIREME_API std::string text_of(const Entry& entry);
/// Returns a table of the last `count` calls of each rank in each group.
TRIREME_API std::string last_calls(const std::vector<History>& histories, int count);

}  // namespace trireme::flight
