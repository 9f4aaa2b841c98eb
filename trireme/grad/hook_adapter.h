// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/gradient_round.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {

/// Tells a GradientRound what autograd does: one hook on each parameter's gradient accumulator; and
/// offers the round's memory to layers that can write a gradient there.
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
  /// Automatic rounds: what runs after close(), before backward() returns.
  void on_close(std::function<void()> f) { after_close_ = std::move(f); }
  /// Automatic rounds: to be called inside a backward, opens a round that ends with it, unless one
  /// is open. Does nothing once this object has gone.
  std::function<void()> beginning();
  /// Forgets a backward that an exception broke off.
  void reset();

 private:
  void begin();
  void accumulated(size_t p);

  GradientRound& round_;
  const Rounds rounds_;
  bool paused_ = false;
  std::function<void()> after_close_;
  // Lives in the callback of the backward under way: gone with an open round, it was broken off.
  std::weak_ptr<int> backward_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::vector<compat::GradHook> hooks_;
  std::vector<GradientPlaceOffer> offers_;
};

}  // namespace trireme
