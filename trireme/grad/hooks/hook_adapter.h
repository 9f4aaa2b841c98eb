// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/rounds/gradient_round.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {

/// Tells a GradientRound what autograd does: one hook on each parameter's gradient accumulator; and
/// offers the round's memory to layers that can write a gradient there.
///
/// An accumulator that autograd replaced (torch::load() into a module does it, Module::to(),
/// set_data()) is noticed by a second hook, on the parameter: its gradient is handed over at the
/// end of that backward, and hooks lie on the new accumulator from then on.
///
/// Hooks go with this object. The round must outlive it. Used by the thread that runs backward.
class TRIREME_API HookAdapter {
 public:
  enum class Rounds {
    automatic,  // a backward is a round: opened by its first hook, closed at its end
    driven,     // somebody else opens and closes (train/step.cc)
  };
  HookAdapter(GradientRound& round, Rounds rounds);
  ~HookAdapter();
  HookAdapter(const HookAdapter&) = delete;

  /// While true, backwards accumulate into p.grad() and nothing is reduced (no_sync).
  void set_paused(bool paused) { paused_ = paused; }
  bool paused() const { return paused_; }
  /// Automatic rounds: asked as one opens. False: this rank gives nothing to it, and its gradients
  /// are dropped.
  void on_open(std::function<bool()> f) { gives_ = std::move(f); }
  /// Automatic rounds: what runs before close(), where this rank gives something to the round.
  void on_end(std::function<void()> f) { before_close_ = std::move(f); }
  /// Automatic rounds: what runs after close(), before backward() returns.
  void on_close(std::function<void()> f) { after_close_ = std::move(f); }
  /// Automatic rounds: to be called inside a backward, opens a round that ends with it, unless one
  /// is open. Does nothing once this object has gone.
  std::function<void()> beginning();
  /// Between backwards: hooks accumulators that are new, so that no backward finds them first.
  void follow();
  /// Forgets a backward that an exception broke off.
  void reset();

 private:
  struct Attached {  // to an accumulator
    compat::GradHook hook;
    GradientPlaceOffer offer;
  };
  std::unique_ptr<Attached> attach(size_t i);
  void begin();
  void end();
  void arriving(size_t i);
  void accumulated(size_t i);
  void hand_over();
  void drop_gradients();

  GradientRound& round_;
  const Rounds rounds_;
  bool paused_ = false, giving_ = true;
  std::function<bool()> gives_;
  std::function<void()> before_close_, after_close_;
  // Lives in the callback of the backward under way: gone with an open round, it was broken off.
  std::weak_ptr<int> backward_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::vector<std::unique_ptr<Attached>> attached_;
  std::vector<compat::TensorHook> arriving_;
  std::vector<size_t> unseen_;  // contributions of this backward to accumulators without our hook
};

}  // namespace trireme
