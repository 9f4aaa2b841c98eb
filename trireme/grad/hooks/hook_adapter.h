// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/rounds/gradient_round.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {

/// Connects autograd to a GradientRound: a hook on each parameter's gradient accumulator tells the
/// round of each contribution, and layers that can write a gradient in place are offered the
/// round's memory.
///
/// autograd replaces an accumulator after torch::load() into a module, Module::to() or set_data().
/// A second hook, on the parameter, notices that: the gradient is delivered at the end of that
/// backward, and the new accumulator gets a hook of its own.
///
/// The destructor removes the hooks. The round must outlive this object. Used by the thread that
/// runs backward.
class TRIREME_API HookAdapter {
 public:
  enum class Rounds {
    automatic,  // a backward is a round: opened by its first hook, closed at its end
    driven,     // the caller opens and closes it (train/step.cc)
  };
  HookAdapter(GradientRound& round, Rounds rounds);
  ~HookAdapter();
  HookAdapter(const HookAdapter&) = delete;

  /// While true, backwards accumulate into p.grad() and nothing is reduced (no_sync).
  void set_paused(bool paused) { paused_ = paused; }
  bool paused() const { return paused_; }
  /// Automatic rounds: asked as one opens. False: this rank contributes nothing to it, and its
  /// gradients are dropped.
  void contribute_if(std::function<bool()> f) { contributes_ = std::move(f); }
  /// Automatic rounds: runs before close(), if this rank contributes to the round.
  void on_end(std::function<void()> f) { before_close_ = std::move(f); }
  /// Automatic rounds: runs after close(), before backward() returns.
  void on_close(std::function<void()> f) { after_close_ = std::move(f); }
  /// Automatic rounds: returns a function to be called inside a backward. It opens a round that
  /// ends with that backward, unless one is open, and does nothing once this object is destroyed.
  std::function<void()> beginning();
  /// Between backwards, with automatic rounds: a round of what backwards have accumulated while
  /// paused, without another backward. `told_one_by_one`: the round hears of each gradient, as from
  /// a backward; else it finds what it was told of by accumulated_outside() when it closes.
  void reduce_accumulated(bool told_one_by_one);
  /// Between backwards: hooks the accumulators that autograd has replaced, so that the next
  /// backward finds hooks on all of them.
  void rehook_replaced_accumulators();
  /// Discards a backward that was interrupted by an exception.
  void reset();

 private:
  struct Attached {  // to an accumulator
    compat::GradHook hook;
    GradientPlaceOffer offer;
  };
  std::unique_ptr<Attached> attach(size_t i);
  void begin();
  void end();
  void on_gradient_arriving(size_t i);
  void accumulated(size_t i);
  void note_outside(size_t i);
  void deliver_unseen();
  void drop_gradients();

  GradientRound& round_;
  const Rounds rounds_;
  bool paused_ = false, contributing_ = true;
  std::function<bool()> contributes_;
  std::function<void()> before_close_, after_close_;
  // Owned by the callback of the current backward: if it has expired while a round is open, that
  // backward was interrupted.
  std::weak_ptr<int> backward_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::vector<std::unique_ptr<Attached>> attached_;
  std::vector<compat::TensorHook> arriving_;
  std::vector<bool> outside_;   // has accumulated while paused, since the last round
  std::vector<size_t> unseen_;  // contributions of this backward to accumulators without our hook
};

}  // namespace trireme
