// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/gradient_tree.h"
#include "trireme/grad/reducer.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {

/// Tells a Reducer what autograd does: one hook on each parameter's gradient accumulator. Hooks go
/// with this object. The reducer must outlive it. Used by the thread that runs backward.
class TRIREME_API HookAdapter {
 public:
  enum class Rounds {
    automatic,  // a backward is a round: opened by its first hook, closed at its end
    driven,     // somebody else opens and closes (train/step.cc)
  };
  HookAdapter(Reducer& reducer, Rounds rounds);
  ~HookAdapter();
  HookAdapter(const HookAdapter&) = delete;

  /// While true, backwards accumulate into p.grad() and nothing is reduced (no_sync).
  void set_paused(bool paused) { paused_ = paused; }
  /// Gradients of leaves go through `tree` before the reducer sees them; nullptr: they accumulate
  /// in place. With a tree the caller sets gradients to none before each leaf.
  void set_tree(GradientTree* tree) { tree_ = tree; }
  /// After the last leaf: hands over parameters that it did not use.
  void finish_tree();
  /// Automatic rounds: what runs after close(), before backward() returns (buffer broadcast).
  void on_close(std::function<void()> f) { after_close_ = std::move(f); }
  /// Forgets a backward that an exception broke off.
  void reset();

 private:
  void accumulated(size_t p);

  Reducer& reducer_;
  const Rounds rounds_;
  bool paused_ = false;
  GradientTree* tree_ = nullptr;
  std::function<void()> after_close_;
  // Lives in the callback of the backward under way: gone with an open round, it was broken off.
  std::weak_ptr<int> backward_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::vector<compat::GradHook> hooks_;
};

}  // namespace trireme
