// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/interop/tree.h"

namespace trireme::interop {

struct NamedNode {
  std::string name;
  NodeId node;
};

/// Every leaf of a tree under a dotted name, in the tree's order: model.fc.weight,
/// optimizer.state.0.exp_avg. Dict keys (text or whole numbers) and places in lists are the parts
/// of a name; an object adds none for itself. A tree that is one leaf has the name "value".
/// UsageError for two leaves of one name, for keys of another kind, and for more than 1,000,000
/// leaves.
TRIREME_API std::vector<NamedNode> flatten(const Tree& tree, const std::string& where);

}  // namespace trireme::interop
