// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/gradients.h"

#include "trireme/base/check.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hook_adapter.h"
#include "trireme/grad/leaf_round.h"
#include "trireme/grad/module_sync.h"
#include "trireme/grad/reducer.h"

namespace trireme {
namespace {

Group& synchronised(Group& group, const NamedTensors& parameters, const NamedTensors& buffers) {
  verify_same(group, parameters, "parameter");
  verify_same(group, buffers, "buffer");
  broadcast_tensors(group, parameters);
  broadcast_tensors(group, buffers);
  return group;
}

}  // namespace

struct Gradients::Impl {
  Impl(const NamedTensors& parameters, Group& group, size_t bucket_bytes, bool reproducible)
      : reducer(parameters, group, {bucket_sizes_for(group, bucket_bytes, 0), ReduceOp::sum}),
        leaves(reproducible ? std::make_unique<LeafRound>(reducer) : nullptr),
        hooks(round(), HookAdapter::Rounds::driven) {}

  GradientRound& round() { return leaves ? static_cast<GradientRound&>(*leaves) : reducer; }

  Reducer reducer;
  std::unique_ptr<LeafRound> leaves;
  HookAdapter hooks;
};

Gradients::Gradients(NamedTensors parameters, const NamedTensors& buffers, Group group,
                     size_t bucket_bytes, bool reproducible)
    : parameters_(std::move(parameters)),
      impl_(std::make_unique<Impl>(parameters_, synchronised(group, parameters_, buffers),
                                   bucket_bytes, reproducible)) {}

Gradients::~Gradients() = default;

void Gradients::open(int micro_batches) {
  // Set to none rather than zeroed: the first contribution is then taken over without a pass that
  // adds it to zeros.
  for (auto& [name, p] : parameters_) p.mutable_grad() = at::Tensor();
  if (impl_->leaves)
    impl_->leaves->set_leaves(micro_batches);
  else
    impl_->reducer.expect(micro_batches);
  impl_->round().open();
}

void Gradients::begin_micro_batch(int i) {
  if (impl_->leaves) impl_->leaves->begin_leaf(i);
}

void Gradients::close() { impl_->round().close(); }

const Reducer& Gradients::reducer() const { return impl_->reducer; }

int Gradients::tree_buffers(int micro_batches) const {
  return impl_->leaves ? 1 + __builtin_ctz(static_cast<unsigned>(micro_batches)) : 0;
}

}  // namespace trireme
