// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/comm/start/run.h"
#include "trireme/rendezvous/generations.h"

namespace trireme {

/// The group of the first `size` ranks of member.generation(), every one of which calls it;
/// `member` is one of them, and outlives it. Nothing of a group before is used. PeerLost: the
/// generation has lost one of them meanwhile; Timeout.
TRIREME_API Group group_of_generation(const InitOptions& options, GenerationMember& member,
                                      int size);

}  // namespace trireme
