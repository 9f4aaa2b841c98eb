// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/gradient_tree.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include "trireme/base/check.h"
#include "trireme/tensor/host_data.h"

namespace trireme {

void GradientTree::open(int leaves) {
  check<UsageError>(
      leaves > 0 && (leaves & (leaves - 1)) == 0,
      "{} leaves on a rank; reproducible mode adds along a binary tree and needs a power of two",
      leaves);
  leaves_ = leaves;
  leaf_ = 0;
  for (auto& n : nodes_) {
    n.next = 0;
    n.levels.assign(static_cast<size_t>(__builtin_ctz(static_cast<unsigned>(leaves)) + 1),
                    at::Tensor());
  }
}

void GradientTree::begin_leaf(int leaf) {
  check<UsageError>(0 <= leaf && leaf < leaves_, "leaf {} of {}", leaf, leaves_);
  leaf_ = leaf;
}

// Carries as a binary counter does. The last sum goes straight to `out`.
void GradientTree::push(Node& n, at::Tensor x, const at::Tensor& out) {
  const bool last = n.next + 1 == leaves_;
  size_t k = 0;
  for (; n.next >> k & 1; ++k) {
    at::Tensor left = std::move(n.levels[k]);
    n.levels[k] = at::Tensor();
    const bool to_out = last && (1 << (k + 1)) == leaves_;
    if (left.defined() && x.defined()) {
      at::Tensor& target = to_out ? const_cast<at::Tensor&>(out) : left;
      at::add_out(target, left, x);
      x = target;
    } else if (left.defined()) {
      x = std::move(left);
    }
  }
  n.levels[k] = std::move(x);
  ++n.next;
}

bool GradientTree::add(size_t p, at::Tensor gradient, const at::Tensor& out) {
  at::NoGradGuard no_grad;
  Node& n = nodes_[p];
  check<UsageError>(n.next <= leaf_,
                    "a parameter got two gradients in leaf {}: two backwards in one leaf", leaf_);
  while (n.next < leaf_) push(n, at::Tensor(), out);
  push(n, std::move(gradient), out);
  return n.next == leaves_ && finish(p, out);
}

bool GradientTree::finish(size_t p, const at::Tensor& out) {
  at::NoGradGuard no_grad;
  Node& n = nodes_[p];
  while (n.next < leaves_) push(n, at::Tensor(), out);
  at::Tensor sum = std::move(n.levels.back());
  n.levels.back() = at::Tensor();
  if (!sum.defined()) return false;
  if (!same_memory(sum, out)) out.copy_(sum);
  return true;
}

}  // namespace trireme
