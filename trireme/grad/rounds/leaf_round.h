// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/grad/gradient_tree.h"
#include "trireme/grad/reducer.h"
#include "trireme/grad/rounds/round_decorator.h"

namespace trireme {

/// Reproducible mode's round: gradients of leaves go through a GradientTree, and the reducer sees
/// each parameter once, with the sum. The caller sets gradients to none before each leaf.
class TRIREME_API LeafRound final : public RoundDecorator<Reducer> {
 public:
  explicit LeafRound(Reducer& reducer) : RoundDecorator(reducer), tree_(reducer.size()) {}

  void set_leaves(int leaves) { leaves_ = leaves; }
  void begin_leaf(int leaf) { tree_.begin_leaf(leaf); }

  void open() override;
  /// A leaf's gradient lies in memory of its own.
  GradientPlace offer(size_t) override { return {}; }
  void ready(size_t i) override;
  void close() override;

 private:
  GradientTree tree_;
  int leaves_ = 1;
};

}  // namespace trireme
