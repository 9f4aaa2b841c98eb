// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

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

class HeldStep;
class InPlace;  // train/in_place/in_place.h

struct TrainOptions {
  std::string run_dir;                // created if missing; holds config.json
  std::optional<std::string> resume;  // a run folder or a step folder
  /// The step of `resume`, if ranks before these left it in memory: it is loaded from there, which
  /// is let go then.
  std::shared_ptr<HeldStep> held = {};
  /// Written to run_dir/config.json once every check has passed; if empty, nothing is written.
  std::string config_json = {};
  /// Called when the run has been built (and resumed), before its first step.
  std::function<void()> built = {};
  /// Polled once per step. A nonzero value (such as a signal number) means: finish the step, save
  /// and return.
  std::function<int()> stop_asked = {};
  /// Called when this rank ran out of memory and is about to retry with a smaller micro-batch
  /// (balance).
  std::function<void()> memory_short = {};
  /// On rank 0: receives messages for users (start, held-out loss, saved, end).
  std::function<void(const std::string&)> say = {};
  /// The seconds by which steps are timed and checkpoints scheduled, from any beginning; if empty,
  /// those of the steady clock. For tests.
  std::function<double()> clock = {};
  /// Where a run goes on in this process when its ranks are others. Null: it ends.
  InPlace* in_place = nullptr;
  int progress_fd = -1;  // on rank 0: where the progress bar or step lines go; -1: nowhere
};

struct TrainResult {
  int64_t steps = 0;
  /// Nonzero if a rank was asked to stop before the last step; the same on all ranks.
  int stopped = 0;
  std::string checkpoint;  // the last one; "" if none was saved
  double loss = 0;         // of the last step
  double held_out_loss = -1;
};

/// What Program::step() trains with. Every rank must make the same calls in the same order, from
/// one thread.
class TRIREME_API Trainer {
 public:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  ~Trainer();
  Trainer(const Trainer&) = delete;

  const Config& config() const;
  Group group() const;
  /// The ranks that see other batches than this one. Those of one copy of the model
  /// (parallelism.tp, pp) have the same rank here, and a program that makes its own batches makes
  /// the same on them.
  Group data_parallel() const;
  int64_t step() const;  // steps done
  int64_t steps() const;
  Network& net();
  /// Where this rank computes (`device`); it is the thread's current device during train(). The
  /// pieces and the batches of next_batch() are there, and update() brings its batches there.
  at::Device device() const;
  /// The generator for the program's own random numbers (noise, actions). It and LibTorch's default
  /// generator are seeded at the start of each step from training.seed, the step and the rank, so
  /// that a resumed run draws the same numbers. The ranks of one pipeline draw the same from this
  /// one, as they see the same batch, and others from the default one. Ranks that are threads of
  /// one process share the default generator and must use this one.
  at::Generator generator() const;

  /// Returns this rank's micro-batches of the next step of Program::data(). Throws UsageError if
  /// the program has no data.
  Batch next_batch();
  using Loss = std::function<LossTerms(Network&, const MicroBatch&)>;
  /// Takes one optimizer step on an update's parameters: runs forward and backward of each
  /// micro-batch (with the loss scale, if any), sums gradients over ranks, divides them by the
  /// weights over all ranks and applies gradient_clipping. The parameters of other updates are
  /// constant meanwhile. If `loss` is empty, Program::loss() is used. Each rank needs at least one
  /// micro-batch, which may have weight 0.
  StepReport update(const std::string& name, const Batch& batch, const Loss& loss = {});

  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Performs a whole run: build, resume, steps, evaluation, checkpoints, metrics. Every rank must
/// call it. If the resumed run already has all its steps, it reports so and writes nothing. Throws
/// ResourceError also if the run folder disappears during training.
TRIREME_API TrainResult train(Program& program, const Config& config, Group group,
                              const TrainOptions& options);
/// Trains the model on the data that the configuration names.
TRIREME_API TrainResult train(const Config& config, Group group, const TrainOptions& options);

}  // namespace trireme
