// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/models/model.h"
#include "trireme/optim/master_weights.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/shard/sharded_parameters.h"
#include "trireme/train/gradients/gradients.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/setup/compute.h"

// What a configuration's zero_optimization asks of a run.
namespace trireme {

struct ZeroSetup {
  ZeroStage stage = ZeroStage::none;
  ShardGroups groups;
  std::unique_ptr<FullySharded> sharded;  // stage 3: from its making until gradients take it over
};

/// Every rank calls it. UsageError for what this build or this combination cannot do.
ZeroSetup set_up_zero(const Config& config, Group group, const PrecisionPlan& precision);
/// Stage 3: the model is made unit by unit, each sharded before the next. `make` makes it.
std::shared_ptr<Model> made_sharded(
    ZeroSetup& zero, const PrecisionPlan& precision,
    const std::function<std::shared_ptr<Model>(const UnitMade&)>& make);
/// Takes zero.sharded over. clips_own: stage 0 alone.
std::unique_ptr<Gradients> gradients_for(ZeroSetup& zero, const Config& config,
                                         const PrecisionPlan& precision, NamedTensors parameters,
                                         const NamedTensors& buffers, CommHook hook,
                                         std::shared_ptr<BucketTuning> tuning, bool clips_own);
/// Stage 3: forwards run in the root of `sharded`.
std::unique_ptr<Compute> sharded_compute(std::unique_ptr<Compute> inner, FullySharded& sharded);
/// Of what `gradients` own; with its state in a file, where the configuration asks for it.
std::unique_ptr<Optimizer> offloaded(const Config& config, const ZeroSetup& zero,
                                     Gradients& gradients, const MakeOptimizer& make);
/// "zero stage 3, dp_shard 2, dp_replicate 1"; "replicated" at stage 0: of checkpoints.
std::string layout_of(const ZeroSetup& zero);
/// "ZeRO stage 2 over 4 ranks, optimizer state in /nvme"; "" at stage 0.
std::string describe(const ZeroSetup& zero, const Config& config);

}  // namespace trireme
