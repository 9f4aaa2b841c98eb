// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trireme/data/batch.h"
#include "trireme/mesh/mesh.h"
#include "trireme/pipeline/schedule/stage_blocks.h"
#include "trireme/train/batch_computation.h"

namespace trireme {

/// What the stages of a rank compute.
struct StageFunctions {
  using Tensors = std::vector<at::Tensor>;
  /// Stage `stage` of the network, `own` among this rank's, on what the stage before returned;
  /// nothing comes to the first one.
  std::function<Tensors(Run& run, int stage, size_t own, const Tensors& inputs,
                        const MicroBatch& micro)>
      forward;
  /// The sum of the losses over the micro-batch, from what the last stage returned.
  std::function<at::Tensor(Run& run, const Tensors& outputs, const MicroBatch& micro)> loss;
};
/// The functions of a model that knows its stages (Model::select_stage).
StageFunctions stages_of_model();

/// Computes a step's micro-batches through the stages of a pipeline on the mesh's axis "pp". Every
/// rank reads the samples of its copy of the model: the first stage takes their inputs, the last
/// one their targets, and all of them what positions and random numbers depend on. Every rank of
/// the mesh must call it.
std::shared_ptr<BatchComputation> compute_through_stages(const DeviceMesh& mesh,
                                                         const pipeline::PipelinePlan& plan,
                                                         at::Device device,
                                                         StageFunctions functions);

/// What this rank has of the network.
std::vector<pipeline::StageBlocks> stages_here(const pipeline::PipelinePlan& plan, int rank);

}  // namespace trireme
