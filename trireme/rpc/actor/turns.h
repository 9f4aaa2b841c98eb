// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/rpc/wire/messages.h"

// How the chain of calls says within which turn of which actor a message was sent: the method of a
// link is "Sim.run #<actor>.<ticket>". An actor has a number that no other ever has, and each
// message a ticket that its sender drew.
namespace trireme::rpc::detail {

struct Turn {
  uint64_t actor = 0;
  uint64_t ticket = 0;
  bool operator==(const Turn&) const = default;
};

/// "Sim.run" and a turn.
TRIREME_API std::string turn_text(const std::string& method, const Turn& turn);
/// None: the link is no actor's.
TRIREME_API std::optional<Turn> turn_of(const wire::Link& link);
/// "Sim.run"
TRIREME_API std::string method_without_turn(const wire::Link& link);
/// The chain without the numbers of its turns.
TRIREME_API std::string shown_turns(std::vector<wire::Link> chain);

/// How a message came out of the turn `turn` of an actor on `worker`.
struct Origin {
  size_t link = 0;            // of the turn
  uint64_t first_ticket = 0;  // of what the turn sent first; 0: that was no message to an actor
  bool direct = false;        // it sent the message itself
};
/// `chain` is the message's; its last link is the message itself. None: it did not.
TRIREME_API std::optional<Origin> origin_in(const std::vector<wire::Link>& chain,
                                            const std::string& worker, const Turn& turn);

}  // namespace trireme::rpc::detail
