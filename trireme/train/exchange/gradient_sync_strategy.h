// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"
#include "trireme/train/gradients/gradients.h"

namespace trireme {

/// How the ranks of a run keep one model: by plain sums of all gradients in every step, or in
/// another way (comm.strategy, compression, averaging; at stage 0). Every rank must make the same
/// calls.
class TRIREME_API GradientSyncStrategy {
 public:
  virtual ~GradientSyncStrategy();
  GradientSyncStrategy(const GradientSyncStrategy&) = delete;

  /// Returns the hook that reduces buckets.
  virtual CommHook hook() = 0;
  /// Called before the first step, when weights and buffers are the same on all ranks.
  virtual void attach(const NamedTensors& /*parameters*/, const NamedTensors& /*buffers*/) {}
  /// The number of samples or tokens that this rank's gradients are sums over.
  virtual double weight(const Gradients::Reports& reports) const;
  /// Whether each rank clips its own gradient in the open step, before it is encoded; otherwise the
  /// mean is clipped, as without an exchange. The same on all ranks.
  virtual bool clips_own() const { return false; }
  /// Whether clips_own() is true in some steps.
  virtual bool may_clip_own() const { return false; }
  /// Whether this rank's optimizer takes steps.
  virtual bool steps_on_this_rank() const { return true; }
  /// Called after the optimizer has stepped on every rank that does; synchronises the weights when
  /// due.
  virtual void after_optimizer_step() {}
  /// Visits the state of this object and of the rank's optimizer.
  virtual void state(StateVisitor& visitor, const StateWalk& of_optimizer);
  /// Called when the loss scale changed: gradients of later steps are scaled by `factor` more than
  /// before.
  virtual void rescaled(double /*factor*/) {}
  /// Whether the assignment of gradients to buckets affects the result's bits.
  virtual bool sees_buckets() const { return false; }
  /// Returns what changed during the last step, for users; "" if nothing.
  virtual std::string news() { return {}; }
  /// Bytes of gradients that this rank sent in the last step, as counted by the codec; -1 without
  /// one.
  virtual int64_t wire_bytes() const { return -1; }
  /// How state is laid out on ranks, for checkpoint/sharded_writer.h; for example "replicated".
  const std::string& layout() const { return layout_; }
  /// For the start line: "gradients travel as int8"; "" for plain sums.
  const std::string& text() const { return text_; }

  /// While a guard exists, ranks that stepped separately hold the mean of their weights; afterwards
  /// each holds its own again.
  class TRIREME_API AveragedWeightsGuard {
   public:
    /// loading: the weights, and the state from which each rank resumes, are about to be loaded
    /// from a checkpoint.
    explicit AveragedWeightsGuard(GradientSyncStrategy& exchange, bool loading = false);
    ~AveragedWeightsGuard();
    AveragedWeightsGuard(const AveragedWeightsGuard&) = delete;

   private:
    GradientSyncStrategy& exchange_;
  };

 protected:
  GradientSyncStrategy(std::string text, std::string layout = "replicated")
      : text_(std::move(text)), layout_(std::move(layout)) {}
  virtual void begin_as_one(bool /*loading*/) {}
  virtual void end_as_one() {}

 private:
  std::string text_, layout_;
};

/// Makes the strategy of the configuration. `parameters`: those that are trained; `plain`: the hook
/// for plain sums (empty: all_reduce); `layout`: how state is then laid out on ranks. Every rank
/// must call it. Throws UsageError for settings that these ranks do not support.
TRIREME_API std::unique_ptr<GradientSyncStrategy> make_exchange(const Config& config, Group group,
                                                                const NamedTensors& parameters,
                                                                CommHook plain, std::string layout);

}  // namespace trireme
