// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/launch/job_plan.h"
#include "trireme/rendezvous/facts/facts.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// What a launcher knows of its host that workers of any program depend on, and of the program.
std::vector<Fact> node_facts(const Machine& machine, const std::vector<std::string>& command);

/// What each node says of itself is compared before any worker starts: node 0 prints the table of
/// what is not alike. All of them call it, each with its own `mine`. Nodes that do not come in time
/// are left to those who watch over them. UsageError on all nodes: what must agree does not.
TRIREME_API void compare_nodes(Store& store, RankFacts mine, int node, int nodes, Deadline deadline,
                               const std::function<bool()>& asked_to_stop);

/// As warnings; nothing if there are no lines.
TRIREME_API void say_differences(const FactTable& table);

}  // namespace trireme::launch
