// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/data/global_batch.h"
#include "trireme/data/loader.h"
#include "trireme/data/source.h"
#include "trireme/data/token_steps.h"
#include "trireme/models/model.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/optim/optimizer.h"
#include "trireme/tensor/state.h"
#include "trireme/train/balance/balance.h"
#include "trireme/train/balance/memory_backoff.h"
#include "trireme/train/balance/own_time.h"
#include "trireme/train/build/tune_buckets.h"
#include "trireme/train/compute.h"
#include "trireme/train/exchange/gradient_sync_strategy.h"
#include "trireme/train/gradients/gradient_noise.h"
#include "trireme/train/gradients/gradients.h"
#include "trireme/train/precision/loss_scaling.h"

namespace trireme {

/// The parts of a training run, built once from the configuration and handed to every step.
struct TRIREME_API Run {
  Group group;
  std::shared_ptr<Model> model;
  NamedTensors weights;  // the model's parameters as they are trained and saved
                         // (train/precision/precision.h)
  std::shared_ptr<const DataSource> train_data, held_out;
  std::unique_ptr<PrefetchingLoader> loader;
  std::unique_ptr<GradientSyncStrategy> exchange;  // null: gradients are plain sums over all ranks
  std::unique_ptr<TuneBuckets> tuning;             // null: buckets are as configured
  std::unique_ptr<Gradients> gradients;
  std::unique_ptr<Compute> compute;
  std::unique_ptr<LossScaling> scaling;
  std::unique_ptr<GradientNoise> noise;    // null unless asked for
  std::unique_ptr<Balance> balance;        // null: every rank has as many samples
  std::unique_ptr<MemoryBackoff> backoff;  // null: out of memory ends the run
  std::shared_ptr<OwnTime> own_time = std::make_shared<OwnTime>();  // computing, not waiting
  std::unique_ptr<Optimizer> optimizer;
  std::optional<LRScheduler> schedule;

  Batches batches;
  std::shared_ptr<const TokenSteps> token_steps;  // null: a step has batches.train samples
  std::string lr_by_batch = "none";  // how a step's rate follows its samples (batch_lr_factor)
  Deal deal = Deal::blocks;          // of micro-batches to ranks
  int64_t steps = 0;                 // that the run will have
  int64_t step = 0;                  // done
  int64_t seed = 42;
  double clip_norm = 0;
  bool reproducible = false;
  bool drop_last = true;  // of an epoch's samples, those that do not fill a step
  bool text = false;      // weights are tokens
  int64_t eval_batches = 0;
  std::string identity;  // what must be equal for the same bits (reproducible mode)
  std::string data_identity;
  std::string precision;              // for people; "": float32
  std::string recompute;              // which blocks, for people; "": none
  std::string sharding;               // what ranks share out, for people; "": nothing
  std::string layout = "replicated";  // how state lies on ranks: checkpoint/sharded_writer.h
  bool collective_forward = false;    // ZeRO-3: every rank runs as many forwards

  /// Of the step that is next, over all ranks.
  int64_t samples_of_step() const;
  double lr_factor() const;

  /// Everything that a checkpoint holds.
  void state(StateVisitor& visitor);
};

/// Every rank calls it with the same configuration. Throws UsageError for what the configuration
/// asks and this build cannot do.
TRIREME_API Run build_run(const Config& config, Group group);
/// The model alone, as it is born.
TRIREME_API std::shared_ptr<Model> build_model(const Config& config,
                                               const UnitMade& unit_made = {});
/// … with the weights of a checkpoint of such a run, in float32 whatever they were trained in: for
/// `trireme generate`.
TRIREME_API std::shared_ptr<Model> load_model(const Config& config, const std::string& checkpoint);
/// Starts (or, after a resume, restarts) reading data at run.step.
TRIREME_API void start_data(Run& run, const Config& config);

}  // namespace trireme
