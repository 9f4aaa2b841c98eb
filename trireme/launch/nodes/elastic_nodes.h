// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/nodes/nodes.h"

namespace trireme::launch {

/// The nodes of --nnodes=MIN:MAX. UsageError: other flags elsewhere. Under etcd it returns when
/// they begin, and PeerLost says that the store was gone before: the nodes may meet again.
std::unique_ptr<Nodes> elastic_nodes(const RunOptions& options, Meeting meeting,
                                     const std::function<bool()>& asked_to_stop);

}  // namespace trireme::launch
