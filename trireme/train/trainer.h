// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/data/batch.h"
#include "trireme/train/program/program.h"
#include "trireme/train/report/step_report.h"

namespace trireme {

struct TrainOptions {
  std::string run_dir;                // made where it is missing; config.json lies there
  std::optional<std::string> resume;  // a run folder or a step folder
  /// Written to run_dir/config.json when nothing refuses the run any more; "": nothing is.
  std::string config_json = {};
  /// Called when the run is built (and resumed), before its first step.
  std::function<void()> built = {};
  /// Looked at once a step. Not 0 (a signal, say): finish the step, save, return.
  std::function<int()> stop_asked = {};
  /// Called when this rank ran out of memory and is about to try with less (balance).
  std::function<void()> memory_short = {};
  std::function<void(const std::string&)> say =
      {};                // rank 0: lines for people (start, held-out loss, saved, end)
  int progress_fd = -1;  // rank 0: where the bar or the step lines go; -1: nowhere
};

struct TrainResult {
  int64_t steps = 0;
  int stopped =
      0;  // not 0: before the last step, because a rank was asked to; the same on all ranks
  std::string checkpoint;  // the last one; "" where none was saved
  double loss = 0;         // of the last step
  double held_out_loss = -1;
};

/// What a program's step() trains with. Every rank makes the same calls in the same order, from one
/// thread.
class TRIREME_API Trainer {
 public:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  ~Trainer();
  Trainer(const Trainer&) = delete;

  const Config& config() const;
  Group group() const;
  int64_t step() const;  // steps done
  int64_t steps() const;
  Network& net();
  /// For what the program draws (noise, actions). It, and LibTorch's default generator, are set at
  /// the start of each step from training.seed, the step and the rank, so that a resumed run draws
  /// what it would have drawn. Ranks that are threads of one process share the default generator
  /// and must draw from this one.
  at::Generator generator() const;

  /// This rank's micro-batches of the next step of Program::data(). UsageError without data.
  Batch next_batch();
  using Loss = std::function<LossTerms(Network&, const MicroBatch&)>;
  /// One optimizer step of an update's parameters: forward and backward of each micro-batch, with
  /// the loss scale where there is one; gradients summed over ranks, clipped by gradient_clipping,
  /// divided by the weights over all ranks. The parameters of other updates are constants
  /// meanwhile. loss empty: Program::loss(). Each rank needs at least one micro-batch; a rank's own
  /// may weigh 0.
  StepReport update(const std::string& name, const Batch& batch, const Loss& loss = {});

  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// A whole run: build, resume, steps, evaluation, checkpoints, metrics. Every rank calls it. A run
/// that is resumed and has all its steps behind it says so and writes nothing.
/// ResourceError also where the run folder goes away while it trains.
TRIREME_API TrainResult train(Program& program, const Config& config, Group group,
                              const TrainOptions& options);
/// Of the model and the data that the configuration names.
TRIREME_API TrainResult train(const Config& config, Group group, const TrainOptions& options);

}  // namespace trireme
