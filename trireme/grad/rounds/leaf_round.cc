// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/leaf_round.h"

#include "trireme/base/check.h"
#include "trireme/tensor/host_data.h"

namespace trireme {

void LeafRound::open() {
  tree_.open(leaves_);
  inner_.open();
}

void LeafRound::ready(size_t i) {
  at::Tensor& grad = parameter(i).mutable_grad();
  at::Tensor leaf = std::move(grad);
  grad = at::Tensor();
  const at::Tensor& out = inner_.gradient(i);
  if (!leaf.defined() || leaf.requires_grad()) [[unlikely]]
    fail<UsageError>("reproducible mode: no plain gradient of '{}'", name(i));
  if (same_memory(leaf, out)) [[unlikely]]
    fail<UsageError>(
        "reproducible mode: the gradient of '{}' was not set to none before the leaf (in a loop of "
        "your own: zero_grad() of the DistributedDataParallel, not of the optimizer)",
        name(i));
  if (!tree_.add(i, std::move(leaf), out)) return;
  grad = out;
  inner_.ready(i);
}

// Parameters that the last leaf did not use are handed over here.
void LeafRound::close() {
  for (size_t i = 0; i < size(); ++i) {
    at::Tensor& grad = parameter(i).mutable_grad();
    const at::Tensor& out = inner_.gradient(i);
    if (grad.defined() && same_memory(grad, out)) continue;
    if (!tree_.finish(i, out)) continue;
    grad = out;
    inner_.ready(i);
  }
  inner_.close();
}

}  // namespace trireme
