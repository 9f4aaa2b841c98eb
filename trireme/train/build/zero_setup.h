// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/mesh/mesh.h"
#include "trireme/models/model.h"
#include "trireme/optim/master_weights.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/shard/model_stages.h"
#include "trireme/shard/sharded_parameters.h"
#include "trireme/train/gradients/gradients.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/setup/compute.h"

// Sets up a run as the section zero_optimization asks.
namespace trireme {

struct ZeroSetup {
  ZeroStage stage = ZeroStage::none;
  ShardGroups groups;
  ModelStages stages;                     // of the pipeline that this rank has
  std::unique_ptr<FullySharded> sharded;  // stage 3, until gradients_for() takes it over
};

/// Every rank must call it. Throws UsageError for unsupported settings or combinations.
ZeroSetup set_up_zero(const Config& config, const DeviceMesh& mesh, const PrecisionPlan& precision,
                      const ModelStages& stages);
/// Makes the model with `make`, on the CPU, and moves it to the device. Stage 3: unit by unit,
/// moving and sharding each before the next.
std::shared_ptr<Model> made_sharded(
    ZeroSetup& zero, const PrecisionPlan& precision, at::Device device,
    const std::function<std::shared_ptr<Model>(const UnitMade&)>& make);
/// Makes the run's gradients; takes over zero.sharded. clips_own is for stage 0 only.
std::unique_ptr<Gradients> gradients_for(ZeroSetup& zero, const Config& config,
                                         const PrecisionPlan& precision, NamedTensors parameters,
                                         const NamedTensors& buffers, CommHook hook,
                                         std::shared_ptr<BucketTuning> tuning, bool clips_own);
/// Stage 3: wraps `inner` so that forwards run inside the root of `sharded`.
std::unique_ptr<Compute> sharded_compute(std::unique_ptr<Compute> inner, FullySharded& sharded);
/// Makes the optimizer for what `gradients` own, with its state in a file, or that of parameters on
/// a device in the host's memory, if the configuration asks for it.
std::unique_ptr<Optimizer> offloaded(const Config& config, const ZeroSetup& zero,
                                     const PrecisionPlan& precision, at::Device device,
                                     Gradients& gradients, const MakeOptimizer& make);
/// Describes the layout in checkpoints: "zero stage 3, dp_shard 2, dp_replicate 1", or "replicated"
/// at stage 0.
std::string layout_of(const ZeroSetup& zero);
/// Describes the setup for users: "ZeRO stage 2 over 4 ranks, optimizer state in /nvme", or "" at
/// stage 0.
std::string describe(const ZeroSetup& zero, const Config& config);

}  // namespace trireme
