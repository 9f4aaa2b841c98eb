// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/gradients.h"

#include "trireme/base/check.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/finite_watch.h"
#include "trireme/grad/hook_adapter.h"
#include "trireme/grad/leaf_round.h"
#include "trireme/grad/module_sync.h"
#include "trireme/grad/reducer.h"
#include "trireme/grad/unused_parameters.h"

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
  Impl(const NamedTensors& parameters, Group& group, GradientOptions o)
      : reducer(parameters, group,
                {bucket_sizes_for(group, o.bucket_bytes, 0), ReduceOp::sum,
                 watch.around(std::move(o.hook))}),
        leaves(o.reproducible ? std::make_unique<LeafRound>(reducer) : nullptr),
        hooks(round(), HookAdapter::Rounds::driven),
        unused(o.find_unused ? name_unused(group.rank()) : refuse_unused()),
        sum(reducer.record().add([this] { return loss.sum; })),
        weight(reducer.record().add([this] { return static_cast<double>(loss.weight); })),
        stop(reducer.record().add([this] { return static_cast<double>(stop_asked); })) {
    watch.attach(reducer.record());
  }

  GradientRound& round() { return leaves ? static_cast<GradientRound&>(*leaves) : reducer; }

  FiniteWatch watch;
  Reducer reducer;
  std::unique_ptr<LeafRound> leaves;
  HookAdapter hooks;
  UnusedPolicy unused;
  LossSum loss;
  int stop_asked = 0;
  RoundRecord::Fact sum, weight, stop;
};

Gradients::Gradients(NamedTensors parameters, const NamedTensors& buffers, Group group,
                     GradientOptions options)
    : parameters_(std::move(parameters)),
      impl_(std::make_unique<Impl>(parameters_, synchronised(group, parameters_, buffers),
                                   std::move(options))) {}

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

void Gradients::tell(const LossSum& loss, int stop_asked) {
  impl_->loss = loss;
  impl_->stop_asked = stop_asked;
}

Gradients::Told Gradients::told() const {
  const RoundRecord& record = impl_->reducer.record();
  return {record.of(impl_->sum), record.of(impl_->weight), record.of(impl_->stop)};
}

void Gradients::ready(size_t i) {
  if (impl_->reducer.is_open()) impl_->reducer.ready(i);
}

void Gradients::close() {
  impl_->round().close();
  std::vector<ParameterUse> unused;
  const int ranks = impl_->reducer.group().size();
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const int used = impl_->reducer.record().used_by(i);
        used < ranks && parameters_[i].second.requires_grad())  // not frozen since
      unused.push_back({parameters_[i].first, used});
  impl_->unused(unused, ranks);
}

Gradients::NotFinite Gradients::not_finite() const {
  const FiniteWatch::Found found = impl_->watch.found(impl_->reducer.record());
  if (found.rank < 0) return {};
  return {found.rank, parameters_[found.parameter].first};
}

const Reducer& Gradients::reducer() const { return impl_->reducer; }

int Gradients::tree_buffers(int micro_batches) const {
  return impl_->leaves ? 1 + __builtin_ctz(static_cast<unsigned>(micro_batches)) : 0;
}

}  // namespace trireme
