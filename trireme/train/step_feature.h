// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/data/batch.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// What a feature may want to know of a step that is done.
struct FinishedStep {
  bool finite = true;     // false: an overflow, and weights are as before
  double grad_scale = 1;  // sums of gradients → their mean
  double norm = 0;        // of that mean, before clipping
  double samples = 0;     // over all ranks
};

/// Something that a configuration adds to a training step (balance, memory backoff, gradient noise,
/// bucket tuning): Run holds a list of them, and train/step.cc calls each at the points below,
/// whatever they are. A new feature is a class of its own and one line where the list is made
/// (train/build/).
///
/// Every rank has the same features in the same order, and makes the same calls, from one thread.
class TRIREME_API StepFeature {
 public:
  StepFeature() = default;
  virtual ~StepFeature();
  StepFeature(const StepFeature&) = delete;

  /// This rank's samples of the step, before its first forward; the result is what it computes on.
  virtual Batch before_backward(Batch batch) { return batch; }
  /// The gradients of a micro-batch have been added to this rank's sums. weight: of its loss.
  virtual void micro_batch_done(const NamedTensors& /*parameters*/, double /*weight*/) {}
  /// The step's micro-batches come again from the first: what was counted of them is void.
  virtual void begin_again() {}
  /// The round of step `step` (from 0) is closed: gradients are sums over ranks, and the round's
  /// record is the same on all of them. The next batch has not been asked for.
  virtual void closed(int64_t /*step*/) {}
  /// The optimizer has stepped, or the step was left out.
  virtual void stepped(const FinishedStep& /*step*/) {}
  /// What a checkpoint holds of it.
  virtual void state(StateVisitor& /*visitor*/) {}

  /// For the start line of a run that is at step `step`; "": nothing.
  virtual std::string describe(int64_t /*step*/) const { return {}; }
  /// After each step: lines to show, separated by '\n'; "" mostly.
  virtual std::string news() { return {}; }
  using AddMetric = std::function<void(const std::string& name, double value)>;
  /// Numbers for the metrics of step `step` (from 0).
  virtual void metrics(int64_t /*step*/, const AddMetric& /*add*/) const {}
  /// A line for the end of a run with so many samples a step; "": nothing.
  virtual std::string summary(int64_t /*samples_per_step*/) const { return {}; }
};

}  // namespace trireme
