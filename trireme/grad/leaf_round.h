// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/grad/gradient_tree.h"
#include "trireme/grad/reducer.h"

namespace trireme {

/// Reproducible mode's round: gradients of leaves go through a GradientTree, and the reducer sees
/// each parameter once, with the sum. The caller sets gradients to none before each leaf.
class TRIREME_API LeafRound final : public GradientRound {
 public:
  explicit LeafRound(Reducer& reducer) : reducer_(reducer), tree_(reducer.size()) {}

  void set_leaves(int leaves) { leaves_ = leaves; }
  void begin_leaf(int leaf) { tree_.begin_leaf(leaf); }

  size_t size() const override { return reducer_.size(); }
  const at::Tensor& parameter(size_t i) const override { return reducer_.parameter(i); }
  const std::string& name(size_t i) const override { return reducer_.name(i); }
  void open() override;
  bool is_open() const override { return reducer_.is_open(); }
  void ready(size_t i) override;
  void close() override;
  void reset() override { reducer_.reset(); }

 private:
  Reducer& reducer_;
  GradientTree tree_;
  int leaves_ = 1;
};

}  // namespace trireme
