// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/interop/tree.h"

// What calling one of the names of pickle_names.h describes. Internal to the pickle reader.
namespace trireme::interop {

/// function(*arguments), where Python's would be called (REDUCE).
NodeId described_call(Tree& tree, NodeId function, NodeId arguments, const std::string& where);
/// An instance of a class of data without its state (NEWOBJ).
NodeId described_object(Tree& tree, NodeId cls, NodeId arguments, const std::string& where);
/// Gives an instance its state (BUILD).
void described_state(Tree& tree, NodeId object, NodeId state, const std::string& where);
/// A storage by its persistent id: ('storage', class, key, device, number of elements).
NodeId described_storage(Tree& tree, NodeId id, std::unordered_map<std::string, NodeId>& known,
                         const std::string& where);

}  // namespace trireme::interop
