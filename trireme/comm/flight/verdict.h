// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/flight/history.h"

// Who diverged first, from what ranks wrote down. Pure.
namespace trireme::flight {

struct Verdict {
  enum Kind : uint8_t {
    agree,            // no divergence
    different_call,   // a rank made another call under the same number
    different_pair,   // the two ends of a message name different things
    cycle,            // ranks wait for each other in different calls
    missing_call,     // a rank did not make a call that others wait in
    missing_message,  // a send or recv whose other end did not come
  } kind = agree;
  std::string sentence;
  std::string group;
  int rank = -1;                    // of the world: who diverged; of agree: who was slowest
  uint64_t seq = 0;                 // the number of the call
  std::vector<std::string> absent;  // "rank 2 of group world": no history of it
};

/// Histories of one job, at most one of each rank in each life of a group.
TRIREME_API Verdict judge(const std::vector<History>& histories);

TRIREME_API const char* name_of(Verdict::Kind kind);
/// "all_reduce(float32[10], sum) at train.cc:40".
TRIREME_API std::string text_of(const Entry& entry);
/// The last `count` calls of each rank in each group, as a table for people.
TRIREME_API std::string last_calls(const std::vector<History>& histories, int count);

}  // namespace trireme::flight
