// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/fully_sharded.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/shard/fully_sharded_impl.h"
#include "trireme/shard/save_guard.h"
#include "trireme/tensor/module_state.h"

namespace trireme {

FullySharded::FullySharded(ShardGroups groups, FullyShardedOptions options)
    : ShardedParameters(std::move(groups)) {
  check<UsageError>(options.prefetch_elements >= 0 && options.max_live_elements >= 0 &&
                        options.persistence_threshold >= 0,
                    "FullySharded: prefetch_elements {}, max_live_elements {}, "
                    "persistence_threshold {}: none may be negative",
                    options.prefetch_elements, options.max_live_elements,
                    options.persistence_threshold);
  check<UsageError>(!(options.automatic && options.whole_for_step),
                    "FullySharded: with whole_for_step the caller opens and closes the rounds of "
                    "a step: set automatic to false");
  impl_ = std::make_shared<Impl>(groups_, std::move(options));
}

FullySharded::~FullySharded() = default;

FullySharded::Unit& FullySharded::unit(const std::string& name, torch::nn::Module& module) {
  check<UsageError>(!name.empty(), "FullySharded: a unit needs its module's path as its name");
  if (impl_->options.automatic) add_layouts(name, module);
  Unit& made = impl_->add(name, module, false);
  guard_saving(module);
  return made;
}

void FullySharded::root(torch::nn::Module& module) {
  if (impl_->options.automatic) add_layouts("", module);
  impl_->add("", module, true);
  guard_saving(module);
  complete();
}

std::vector<at::Tensor> FullySharded::run(const Fn& fn, const std::vector<at::Tensor>& inputs) {
  complete();
  return impl_->root->run(fn, inputs);
}

at::Tensor FullySharded::run(const std::function<at::Tensor(const at::Tensor&)>& fn,
                             const at::Tensor& x) {
  complete();
  return impl_->root->run(fn, x);
}

void FullySharded::complete() { impl_->complete(*this); }

void FullySharded::publish() {
  if (impl_->replaced && impl_->replaced->any()) refuse_late(impl_->replaced->first());
  impl_->publish();
}

void FullySharded::accumulate(int backwards) {
  check<UsageError>(backwards >= 1, "FullySharded: a step of {} backwards", backwards);
  impl_->backwards = backwards;
}

FullySharded::NoSync::NoSync(FullySharded& sharded)
    : sharded_(sharded), before_((sharded.complete(), sharded.impl_->hooks->paused())) {
  sharded_.impl_->hooks->set_paused(true);
}
FullySharded::NoSync::~NoSync() { sharded_.impl_->hooks->set_paused(before_); }

void FullySharded::reduce_accumulated() {
  complete();
  check<UsageError>(impl_->options.automatic,
                    "FullySharded: where the caller opens and closes rounds, nothing accumulates "
                    "outside of them");
  impl_->hooks->reduce_accumulated(false);
}

void FullySharded::unshard(int stage) {
  complete();
  impl_->hold(stage, true);
}
void FullySharded::reshard(int stage) { impl_->hold(stage, false); }

FullySharded::Gathered::Gathered(FullySharded& sharded) : sharded_(sharded) {
  sharded_.complete();
  for (const auto& u : sharded_.impl_->units) u->state_->params->gather();
  for (const auto& u : sharded_.impl_->units) u->state_->params->make_whole();
}
FullySharded::Gathered::~Gathered() {
  for (const auto& u : sharded_.impl_->units) sharded_.impl_->drop(*u->state_);
}

void FullySharded::reset() {
  if (impl_->hooks) impl_->hooks->reset();
  for (const auto& u : impl_->units) {
    u->state_->held = u->state_->halved = false;
    u->state_->params->reshard();
    u->state_->endless = false;
  }
  impl_->order_now.clear();
  impl_->backwards_done = 0;
}

GradientScatter& FullySharded::gradients() {
  complete();
  return *impl_->scatter;
}

void FullySharded::end_round() { impl_->end_round(); }

const NamedTensors& FullySharded::buffers() const { return impl_->buffers; }

StateWalk state_of(FullySharded& sharded) {
  return [&sharded](StateVisitor& v) {
    state_of(static_cast<ShardedParameters&>(sharded))(v);
    for (const auto& [name, b] : unique_tensors(sharded.buffers()))
      show_contiguous(b.detach(),
                      [&](at::Tensor t) { v.copy_of_rank_0("model." + name, std::move(t)); });
  };
}

FullySharded::Stats FullySharded::stats() const {
  Stats s = impl_->stats;
  s.gather_buffer_bytes = impl_->gather_buffers.bytes();
  if (impl_->file) s.file = impl_->file->usage();
  return s;
}

}  // namespace trireme
