// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/gradients.h"

#include "trireme/base/check.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/gradient_tree.h"
#include "trireme/grad/hook_adapter.h"
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
  Impl(const NamedTensors& parameters, Group& group, size_t bucket_bytes, bool reproducible,
       CommHook hook)
      : reducer(parameters, group,
                {bucket_sizes_for(group, bucket_bytes, 0), ReduceOp::sum, std::move(hook)}),
        hooks(reducer, HookAdapter::Rounds::driven) {
    if (!reproducible) return;
    tree = std::make_unique<GradientTree>(parameters.size());
    hooks.set_tree(tree.get());
  }

  Reducer reducer;
  HookAdapter hooks;
  std::unique_ptr<GradientTree> tree;
  int micro_batches = 1;
};

Gradients::Gradients(NamedTensors parameters, const NamedTensors& buffers, Group group,
                     size_t bucket_bytes, bool reproducible, CommHook hook)
    : parameters_(std::move(parameters)),
      impl_(std::make_unique<Impl>(parameters_, synchronised(group, parameters_, buffers),
                                   bucket_bytes, reproducible, std::move(hook))) {}

Gradients::~Gradients() = default;

void Gradients::open(int micro_batches) {
  // Set to none rather than zeroed: the first contribution is then taken over without a pass that
  // adds it to zeros.
  for (auto& [name, p] : parameters_) p.mutable_grad() = at::Tensor();
  impl_->micro_batches = micro_batches;
  if (impl_->tree) impl_->tree->open(micro_batches);
  impl_->reducer.open(impl_->tree ? 1 : micro_batches);
}

void Gradients::begin_micro_batch(int i) {
  if (impl_->tree) impl_->tree->begin_leaf(i);
}

void Gradients::close() {
  if (impl_->tree) impl_->hooks.finish_tree();
  impl_->reducer.close();
}

const Reducer& Gradients::reducer() const { return impl_->reducer; }

int Gradients::tree_buffers(int micro_batches) const {
  return impl_->tree ? 1 + __builtin_ctz(static_cast<unsigned>(micro_batches)) : 0;
}

}  // namespace trireme
