// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/nodes/nodes.h"

namespace trireme::launch {

/// The nodes of --nnodes=MIN:MAX. UsageError: other flags elsewhere.
std::unique_ptr<Nodes> elastic_nodes(const RunOptions& options, Meeting meeting);

}  // namespace trireme::launch
