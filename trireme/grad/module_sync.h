// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/tied_tensors.h"

// Making sure that ranks hold the same model. Every rank of the group calls each of these.
namespace trireme {

/// Throws Mismatch on every rank, naming the first difference (name, shape, dtype, count, order)
/// and the ranks, where they do not hold the same list, or its tensors have other names beside, or
/// where they are on a GPU on one rank and on the CPU on another: such ranks would make other calls
/// in a step (a codec computes where the gradients are).
TRIREME_API void verify_same(Group& group, const NamedTensors& tensors, const std::string& what,
                             const TiedNames& tied = {});
/// Rank `root`'s values, written in place without touching version counters.
TRIREME_API void broadcast_tensors(Group& group, const NamedTensors& tensors, int root = 0);
/// Both, for the lists that make a module: all are compared before any is written.
struct ModuleList {
  const NamedTensors& tensors;
  const char* what;  // "parameter", "buffer": for messages
};
TRIREME_API void synchronise_module(Group& group, std::initializer_list<ModuleList> lists,
                                    const TiedNames& tied = {});

}  // namespace trireme
