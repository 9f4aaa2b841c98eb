// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"

namespace trireme::pipeline {

/// Where a receive stands in the list of its rank.
enum class Receives : uint8_t {
  late,        // right before what needs it. A rank that posts a receive and waits has one at a time.
  one_ahead,   // before the action before that, so that it is under way while that one computes,
               // wherever this cannot wait for what itself waits; at most four are open
  when_sent    // in the order in which messages are sent: free of deadlock even where a send
               // returns only after the other rank receives; open receives are not bounded
};

/// Adds the sends and receives that the actions need: a send right after the action whose result it
/// takes (after both of an overlapped pair), a receive where `receives` says. Neighbouring stages on
/// one rank hand over without a message. Units and empty lists are left as they are. Throws
/// UsageError where messages are there already, where a stage is on no rank, and, except for `late`,
/// where the order of the actions alone cannot be carried out.
TRIREME_API Schedule place_messages(const Schedule& schedule, Receives receives = Receives::late);

}  // namespace trireme::pipeline
