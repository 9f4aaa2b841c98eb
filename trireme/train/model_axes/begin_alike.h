// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme {

/// Makes sure that a module whose layers are divided over the ranks of `tp` begins as one model: a
/// parameter that every rank holds whole takes the values of the group's rank 0, and what several
/// hold of one (a key/value head) those of the rank that counts it. Throws UsageError on all ranks,
/// naming the first parameter and the ranks, where they made other layers, where their parts do not
/// make up the whole, where several ranks drew the same numbers for different parts of a weight, or
/// where buffers differ; and for torch's own dropout. A group of one rank: check_undivided().
/// `what` names the module in messages: "piece 'blocks.0'". Every rank of the group must call it,
/// before parameters are sharded.
void begin_alike(torch::nn::Module& module, const std::string& what, Group tp);

/// UsageError if the module holds a part of a parameter and not the whole.
void check_undivided(const torch::nn::Module& module, const std::string& what);

/// UsageError on all ranks of `tp`, which must all call it, if they were given other inputs.
void check_same_inputs(const std::vector<at::Tensor>& inputs, const std::string& what,
                       const Group& tp);

}  // namespace trireme
