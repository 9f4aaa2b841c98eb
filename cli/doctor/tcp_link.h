// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/doctor/advice.h"
#include "trireme/base/clock.h"
#include "trireme/net/listener.h"

// One link, measured over a TCP connection of its own. The asking end knocks with a token that both
// know from the job's store; whoever else knocks is dropped.
namespace trireme::doctor {

/// Tokens are of this many characters.
inline constexpr size_t kTokenBytes = 32;

/// Serves one asker to its end, or until the deadline.
void answer_link(net::Listener& listener, const std::string& token, Deadline deadline);

struct LinkFigures {
  std::string error;  // "": measured
  LinkModel model;
  ClockDifference clock;
};
LinkFigures ask_link(const std::string& endpoint, const std::string& token, Deadline deadline);

}  // namespace trireme::doctor
