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

/// What features are given about a completed step.
struct FinishedStep {
  bool finite = true;     // false: an overflow; weights are unchanged
  double grad_scale = 1;  // sums of gradients → their mean
  double norm = 0;        // of that mean, before clipping
  double samples = 0;     // over all ranks
};

/// Something that a configuration adds to a training step (balance, memory backoff, gradient noise,
/// bucket tuning). Run holds a list of features, and train/step.cc calls each of them at the points
/// below. A new feature needs one class and one line where the list is made (train/build/).
///
/// Every rank has the same features in the same order and makes the same calls, from one thread.
class TRIREME_API StepFeature {
 public:
  StepFeature() = default;
  virtual ~StepFeature();
  StepFeature(const StepFeature&) = delete;

  /// Called before the first forward with this rank's samples of the step; returns those to compute
  /// on.
  virtual Batch before_backward(Batch batch) { return batch; }
  /// Called when the gradients of a micro-batch have been added to this rank's sums. `weight` is
  /// that of its loss.
  virtual void micro_batch_done(const NamedTensors& /*parameters*/, double /*weight*/) {}
  /// Called when the step's micro-batches start again from the first; discard what was counted of
  /// them.
  virtual void begin_again() {}
  /// Called when the round of step `step` (from 0) is closed: gradients are sums over ranks, and
  /// the round's record is the same on all of them. The next batch has not been requested yet.
  virtual void closed(int64_t /*step*/) {}
  /// Called when the optimizer has stepped, or the step was skipped.
  virtual void stepped(const FinishedStep& /*step*/) {}
  /// Visits the feature's state for a checkpoint.
  virtual void state(StateVisitor& /*visitor*/) {}

  /// Returns text for the start line of a run at step `step`, or "".
  virtual std::string describe(int64_t /*step*/) const { return {}; }
  /// Called after each step: returns lines to show, separated by '\n'; usually "".
  virtual std::string news() { return {}; }
  using AddMetric = std::function<void(const std::string& name, double value)>;
  /// Adds numbers to the metrics of step `step` (from 0).
  virtual void metrics(int64_t /*step*/, const AddMetric& /*add*/) const {}
  /// Returns a line for the end of a run with this many samples per step, or "".
  virtual std::string summary(int64_t /*samples_per_step*/) const { return {}; }
};

}  // namespace trireme
