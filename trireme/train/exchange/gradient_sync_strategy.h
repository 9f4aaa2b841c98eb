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

/// How the ranks of a run stay one model: by plain sums of all gradients in every step, or in
/// another way (comm.strategy, compression, averaging; at stage 0). Every rank makes the same
/// calls.
class TRIREME_API GradientSyncStrategy {
 public:
  virtual ~GradientSyncStrategy();
  GradientSyncStrategy(const GradientSyncStrategy&) = delete;

  /// How buckets are reduced.
  virtual CommHook hook() = 0;
  /// The weights and buffers are there, the same on all ranks; before the first step.
  virtual void attach(const NamedTensors& /*parameters*/, const NamedTensors& /*buffers*/) {}
  /// Of what this rank's gradients are sums over: samples or tokens.
  virtual double weight(const Gradients::Reports& reports) const;
  /// In the open step each rank clips its own gradient, before it is encoded; else the mean is
  /// clipped, as without an exchange. The same on all ranks.
  virtual bool clips_own() const { return false; }
  /// In some steps it does.
  virtual bool may_clip_own() const { return false; }
  /// This rank's optimizer steps.
  virtual bool steps_on_this_rank() const { return true; }
  /// It has, on every rank that does: the weights become one, if that is due.
  virtual void after_optimizer_step() {}
  /// The state of this, and of what steps on a rank.
  virtual void state(StateVisitor& visitor, const StateWalk& of_optimizer);
  /// Gradients of later steps come scaled by so much more than before (a loss scale that moved).
  virtual void rescaled(double /*factor*/) {}
  /// Which gradients share a bucket shows in the bits.
  virtual bool sees_buckets() const { return false; }
  /// After a step, for people: what has changed by itself; "".
  virtual std::string news() { return {}; }
  /// Bytes of gradients that this rank sent in the last step, as their codec counts them; -1: there
  /// is none.
  virtual int64_t wire_bytes() const { return -1; }
  /// How state lies on ranks, for checkpoint/sharded_writer.h; "replicated".
  const std::string& layout() const { return layout_; }
  /// For the start line: "gradients travel as int8"; "": plain sums.
  const std::string& text() const { return text_; }

  /// While it lives, ranks that stepped apart hold the mean of their weights; then their own again.
  class TRIREME_API AveragedWeightsGuard {
   public:
    /// loading: the weights are about to be filled from a checkpoint, and so is what each rank goes
    /// on from.
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

/// What the configuration asks for. `parameters`: those that are trained; `plain`: what reduces
/// buckets where that is plain sums (empty: all_reduce), of state that lies on ranks as `layout`
/// says. Every rank calls it. UsageError for what these ranks cannot do.
TRIREME_API std::unique_ptr<GradientSyncStrategy> make_exchange(const Config& config, Group group,
                                                                const NamedTensors& parameters,
                                                                CommHook plain, std::string layout);

}  // namespace trireme
