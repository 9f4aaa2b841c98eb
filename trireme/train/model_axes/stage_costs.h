// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/pipeline/schedule/stage_blocks.h"

// What the blocks of a network cost, measured at start, so that the stages of a pipeline take
// equally long (parallelism.partition_method).
namespace trireme {

/// The seconds of a forward and a backward: the least of several, after one that is not counted.
/// Gradients of parameters are left behind.
double time_of(const std::function<std::vector<at::Tensor>()>& forward, at::Device device);

/// Copies that a graph begins with, as a stage's inputs do.
std::vector<at::Tensor> as_stage_inputs(const std::vector<at::Tensor>& tensors);

/// The mean over ranks, the same on all of them. Every rank must call it with as many.
std::vector<double> mean_over_ranks(const std::vector<double>& own, Group group);

/// "stages of 4, 4, 3 blocks, which take 12.1, 12.3, 13.0 ms each micro-batch".
std::string describe_stages(const std::vector<pipeline::StageBlocks>& stages,
                            const std::vector<double>& seconds, const char* blocks);

}  // namespace trireme
