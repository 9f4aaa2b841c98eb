// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/mesh/mesh.h"
#include "trireme/pipeline/schedule/stage_blocks.h"
#include "trireme/train/batch_computation.h"

namespace trireme {

/// Computes a step's micro-batches through the stages of a pipeline on the mesh's axis "pp". Every
/// rank reads the samples of its copy of the model: the first stage takes their inputs, the last
/// one their targets, and all of them what positions and random numbers depend on. Every rank of
/// the mesh must call it.
std::shared_ptr<BatchComputation> compute_through_stages(const DeviceMesh& mesh,
                                                         const pipeline::PipelinePlan& plan,
                                                         at::Device device);

/// What this rank has of the network.
std::vector<pipeline::StageBlocks> stages_here(const pipeline::PipelinePlan& plan, int rank);

}  // namespace trireme
