// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/pipeline/schedule/generators.h"
#include "trireme/pipeline/schedule/schedule.h"

namespace trireme {

/// One stage of a network that is divided over ranks: what it computes from the outputs of the
/// stage before, for one micro-batch. Any callable; its parameters are whatever leaves it uses.
struct PipelineStage {
  int index = 0;  // among all stages of the pipeline
  using Tensors = std::vector<at::Tensor>;
  std::function<Tensors(const Tensors& inputs, int micro_batch)> forward;
};

struct PipelineOptions {
  at::Device device = at::kCPU;  // where this rank's stages compute
  /// Called where the schedule says so, with the stage: ZeRO's gathers and drops, and the reduction
  /// of a stage's gradients over its replicas once they are complete, or after each micro-batch
  /// where a table says so (0REDUCE_GRAD3). Empty: nothing to do.
  std::function<void(int stage)> unshard = {}, reshard = {}, reduce_gradients = {};
  /// Runs each computation (F, B, I, W; in evaluate() F): must call `body` once. Empty: it is
  /// called as it is.
  std::function<void(const pipeline::Action& action, const std::function<void()>& body)> around =
      {};
};

/// Trains a network whose stages lie on different ranks, one micro-batch behind another, by a
/// schedule (docs/model_parallel.md).
///
///   Pipeline pipeline(pp, pipeline::generate_schedule("1f1b", {.ranks = 4, .micro_batches = 8}),
///                     {{pp.rank(), [&](const auto& x, int) { return block->forward(x); }}});
///   losses = pipeline.step(inputs, loss);   // then the optimizer, on each rank
///
/// Gradients of the micro-batches are added in p.grad(), in the order of the schedule, with the
/// bits of one process that runs the same micro-batches in turn. Divide the loss by their number
/// for a mean.
///
/// Ranks: `group` has the schedule's number of ranks; every rank makes the same calls. The
/// constructor is collective: ranks that were given different schedules, a schedule that the
/// checker refuses, and stages that are not those that the schedule puts on a rank are a UsageError
/// on all of them. An exception from a stage ends the group: the other ranks get PeerLost with its
/// text. Use from one thread.
///
/// Between stages go up to 8 dense tensors, whose shapes may differ between micro-batches. Those
/// that require a gradient get one back. A stage must not change its inputs in place.
///
/// Source: torch.distributed.pipelining.
class TRIREME_API Pipeline {
 public:
  Pipeline(Group group, pipeline::Schedule schedule, std::vector<PipelineStage> stages,
           PipelineOptions options = {});
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  using Tensors = PipelineStage::Tensors;
  /// The first stage's inputs; called on its rank.
  using Inputs = std::function<Tensors(int micro_batch)>;
  /// A scalar from the last stage's outputs; called on its rank.
  using Loss = std::function<at::Tensor(const Tensors& outputs, int micro_batch)>;

  /// Forward and backward of all micro-batches. Returns the losses by micro-batch on the rank of
  /// the last stage, and nothing on others. Returns when this rank is done, perhaps before others.
  std::vector<at::Tensor> step(const Inputs& inputs, const Loss& loss);
  /// Forward alone, without gradients, of the schedule's number of micro-batches or another one,
  /// the same on all ranks. Returns the last stage's outputs by micro-batch on its rank.
  std::vector<Tensors> evaluate(const Inputs& inputs);
  std::vector<Tensors> evaluate(const Inputs& inputs, int micro_batches);

  bool has_first_stage() const;
  bool has_last_stage() const;
  const pipeline::Schedule& schedule() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
