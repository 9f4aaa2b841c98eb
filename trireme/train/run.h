// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/data/device_batches.h"
#include "trireme/data/loader.h"
#include "trireme/data/source.h"
#include "trireme/data/step_plan.h"
#include "trireme/mesh/mesh.h"
#include "trireme/models/model.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule/lr_schedule.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/state.h"
#include "trireme/train/balance/out_of_memory.h"
#include "trireme/train/balance/own_time.h"
#include "trireme/train/batch_computation.h"
#include "trireme/train/exchange/gradient_sync_strategy.h"
#include "trireme/train/gradients/gradients.h"
#include "trireme/train/model_axes/tally.h"
#include "trireme/train/precision/loss_scaling.h"
#include "trireme/train/setup/compute.h"
#include "trireme/train/step_feature.h"

namespace trireme {

struct Run;
/// Computes the sum of the losses over a micro-batch, a float32 scalar.
using RunLoss = std::function<at::Tensor(Run& run, const MicroBatch& micro)>;

/// The parts of a training run, built once from the configuration and passed to every step. All are
/// set in a run that steps, except the data of a caller that brings its own batches.
struct TRIREME_API Run {
  DeviceMesh mesh;
  at::Device device = at::kCPU;  // of this rank: where it computes, with its weights and state
  std::shared_ptr<Model> model;
  NamedTensors weights;      // the model's parameters as they are trained and saved
                             // (train/precision/precision.h)
  ParameterLayouts layouts;  // of models whose layers are divided over ranks; else empty
  std::shared_ptr<const DataSource> train_data, held_out;
  std::optional<DataOrigin> data_origin;  // where this process begins to read; else at `step`
  std::unique_ptr<StepPlan> plan;
  std::unique_ptr<DeviceBatches> device_batches;  // null: the device is the CPU
  std::unique_ptr<PrefetchingLoader> loader;
  std::unique_ptr<GradientSyncStrategy> exchange;
  std::unique_ptr<Gradients> gradients;
  std::shared_ptr<const NormParts> norm_parts;  // for norms of the whole model
  std::unique_ptr<Tally> tally;                 // makes facts of some ranks those of all
  std::unique_ptr<Compute> compute;
  std::shared_ptr<BatchComputation> computation = compute_in_turn();
  RunLoss loss;
  std::unique_ptr<LossScaling> scaling;
  std::shared_ptr<OutOfMemoryPolicy> out_of_memory = end_on_out_of_memory();
  std::shared_ptr<OwnTime> own_time = std::make_shared<OwnTime>();  // computing, not waiting
  std::unique_ptr<Optimizer> optimizer;
  std::optional<LRScheduler> lr;
  std::vector<std::shared_ptr<StepFeature>> features;

  Batches batches;
  std::string lr_by_batch = "none";  // how the rate follows a step's samples (batch_lr_factor)
  double lr_by_ranks = 1;            // where ranks are missing, and steps have fewer samples
  int64_t parameters = 0;            // trained ones, of the whole model
  int64_t steps = 0;                 // of the whole run
  int64_t step = 0;                  // done
  int64_t seed = 42;
  double clip_norm = 0;
  bool reproducible = false;
  bool text = false;  // weights are tokens
  /// A step has begun to change what a checkpoint holds, and has not ended.
  bool in_update = false;
  int64_t eval_batches = 0;
  std::string identity;  // what must be equal for the same bits (reproducible mode)
  std::string data_identity;
  std::string data_contents;        // a hash of what the data's files hold; "": not known
  std::vector<std::string> setup;   // for the start line: precision, recomputation, sharding
  bool collective_forward = false;  // ZeRO-3: every rank runs equally many forwards

  /// All ranks of the run.
  Group world() const { return mesh.world(); }
  /// The ranks that read other samples. Gradients are summed over these, and over those that have
  /// other positions of the same samples (train/gradients/gradient_families.h).
  Group data_parallel() const { return mesh.group("dp"); }
  /// Whether this rank tells a micro-batch's weight. Ranks that have other positions of the same
  /// samples tell the losses of theirs, and one of them the weight of all.
  bool tells_weight() const { return mesh.coordinate("cp") == 0; }
  /// Returns the first feature of this type, or null.
  template <class Feature>
  Feature* find() const {
    for (const auto& f : features)
      if (auto* found = dynamic_cast<Feature*>(f.get())) return found;
    return nullptr;
  }

  /// The number of samples of the step that is being taken, over all ranks.
  int64_t samples_of_step() const;
  double lr_factor() const;

  /// Visits everything that a checkpoint holds.
  void state(StateVisitor& visitor);
  /// After a load through state(): ranks compute with what was loaded.
  void loaded();
};

/// Builds a run. Every rank must call it with the same configuration. Throws UsageError for
/// settings that this build does not support.
TRIREME_API Run build_run(const Config& config, Group group);
/// Builds the model alone, with its initial weights.
TRIREME_API std::shared_ptr<Model> build_model(const Config& config,
                                               const UnitMade& unit_made = {});
/// Builds the model with the weights of a checkpoint of such a run, in float32 whatever dtype they
/// were trained in, on the device that the configuration names, for `trireme generate`.
TRIREME_API std::shared_ptr<Model> load_model(const Config& config, const std::string& checkpoint);
/// Starts (or, after a resume, restarts) reading data at run.data_origin or run.step.
TRIREME_API void start_data(Run& run, const Config& config);

}  // namespace trireme
