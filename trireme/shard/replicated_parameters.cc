// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/replicated_parameters.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/grad/bucket_plan.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/module_sync.h"
#include "trireme/grad/tuning/bucket_sizes.h"
#include "trireme/tensor/tensor_overlaps.h"

namespace trireme {
namespace {

// Buckets as a Reducer has them at first: the last parameters get their gradients first. They are
// not laid out anew later, since the optimizer's state lies along them. A bucket has parameters of
// one stage.
std::vector<NamedTensors> lay_out(const NamedTensors& parameters, const ShardGroups& groups,
                                  size_t bytes, const ModelStages& stages) {
  std::vector<BucketItem> items;
  std::vector<int> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), 0);
  for (const auto& [name, p] : parameters)
    items.push_back({p.numel(), static_cast<size_t>(p.element_size()),
                     stages(name) * static_cast<int>(at::ScalarType::NumOptions) +
                         static_cast<int>(p.scalar_type())});
  std::vector<NamedTensors> buckets;
  for (const auto& bucket : plan_buckets(items, order, bucket_sizes_for(groups.shards, bytes, 0))) {
    buckets.emplace_back();
    for (int i : bucket) buckets.back().push_back(parameters[static_cast<size_t>(i)]);
  }
  return buckets;
}

}  // namespace

ReplicatedParameters::ReplicatedParameters(const DdpTensors& t, ShardGroups groups,
                                           const ReplicatedOptions& options)
    : ShardedParameters(std::move(groups)) {
  check<UsageError>(!t.parameters.empty(),
                    "sharding: no parameter requires a gradient, so there is nothing to shard; use "
                    "the module as it is");
  check<UsageError>(t.sparse.empty(),
                    "sharding: the gradient of '{}' is sparse, and parts of such are not reduced: "
                    "make the embedding with sparse(false), or take DistributedDataParallel",
                    t.sparse.empty() ? "" : t.sparse.front());
  Group& world = groups_.world;
  NamedTensors stay = t.frozen;
  stay.insert(stay.end(), t.buffers.begin(), t.buffers.end());
  refuse_overlaps("sharding", t.parameters, stay);
  synchronise_module(
      world, {{t.parameters, "parameter"}, {t.frozen, "frozen parameter"}, {t.buffers, "buffer"}},
      t.tied);

  std::vector<FlatParameters*> flats;
  ScatterOptions s;
  shared_ = options.share_weights;
  for (auto& members : lay_out(t.parameters, groups_, options.bucket_bytes, options.stages)) {
    if (options.stages.count > 1) s.stages.push_back(options.stages(members.front().first));
    const at::Tensor memory = make_flat_buffer(members);
    auto flat = std::make_unique<FlatParameters>(std::move(members), groups_.shards, memory);
    flats.push_back(flat.get());
    buffers_.push_back({std::move(flat), memory});
  }
  s.op = options.op;
  s.keep_gather_buffers = options.stage == ZeroStage::optimizer && !options.tree;
  s.tree = options.tree;
  s.replicas = groups_.replicas;
  s.world = groups_.world;
  s.wire = options.wire;
  scatter_ = std::make_unique<GradientScatter>(flats, groups_.shards, s);
  tied_ = t.tied;
  replaced_ = std::make_unique<ReplacedParameters>("the sharded module", t.parameters, t.frozen,
                                                   groups_.world, scatter_->record());
  replaced_->accept();  // they are in the flat buffers
  set_flats(flats);
}

ReplicatedParameters::~ReplicatedParameters() = default;

// Shared flat buffers belong to one rank after the other, so that memory is owned in equal parts.
at::Tensor ReplicatedParameters::make_flat_buffer(const NamedTensors& members) {
  Group& group = groups_.shards;
  const int owner = static_cast<int>(buffers_.size()) % group.size();
  const ShardPlan plan = FlatParameters::plan_flat_buffer(members, group.size());
  const auto options = members.front().second.options().requires_grad(false);
  at::Tensor memory = shared_ ? group.shared({plan.flat_elements()}, options, owner)
                              : group.empty({plan.flat_elements()}, options);
  if (!shared_ || group.rank() == owner) write_flat_buffer(memory, plan, members);
  if (shared_) group.barrier();
  return memory;
}

// With shared weights every rank has written its part in its place. Nobody computed meanwhile: the
// round's record came from all of them, behind their backwards.
void ReplicatedParameters::publish() {
  for (const auto& b : buffers_)
    if (b.flat->untaken()) refuse_late(replaced_->first());
  // Replaced since the last round: what stepped began with their values, and this is told with the
  // next round's record.
  const bool replaced = replaced_->any() && replaced_->look();
  if (shared_) {
    groups_.shards.barrier();
  } else {
    std::vector<Work> works;
    for (auto& b : buffers_)
      works.push_back(groups_.shards.all_gather_into_tensor(b.memory, b.flat->shard()));
    for (auto& work : works) work.wait();
  }
  if (!replaced) return;
  for (auto& b : buffers_) b.flat->return_to(b.memory, false);
  replaced_->accept();
}

// What is replaced by something that cannot be followed is refused by the next round.
void ReplicatedParameters::complete() {
  if (replaced_->any() && replaced_->fit())
    for (auto& b : buffers_) b.flat->take_replaced();
}

void ReplicatedParameters::look_or_end() {
  if (!look()) end_with(replaced_->refusal());
}

// Nobody computes meanwhile: the round's record came from all ranks, behind their backwards.
void ReplicatedParameters::follow() {
  if (!scatter_->step_done() || !replaced_->check()) return;
  for (auto& b : buffers_) b.flat->take_replaced();
  if (shared_) groups_.shards.barrier();
  for (auto& b : buffers_) b.flat->return_to(b.memory, !shared_);
  replaced_->accept();
}

}  // namespace trireme
