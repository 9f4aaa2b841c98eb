// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/bucket_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "trireme/grad/rounds/non_finite.h"

namespace trireme {
namespace {

constexpr int kSeparate = 1 << 16;  // beside a dtype, in BucketItem::kind

at::Tensor alias_of(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes) {
  auto* p =
      static_cast<char*>(flat.data_ptr()) + offset * static_cast<int64_t>(flat.element_size());
  // LibTorch would ask CUDA on which GPU p is, and that of no elements is null.
  return at::for_blob(p, sizes)
      .deleter([flat](void*) {})
      .options(flat.options())
      .target_device(flat.device())
      .make_tensor();
}

}  // namespace

// Elements that a parameter takes: each begins on a cache line of its own.
int64_t BucketMemory::Kind::lines() const {
  const int64_t line = 64 / bytes;
  return (numel + line - 1) / line * line;
}

// All buckets of a dtype lie in one block, so a new layout takes no second one.
BucketMemory::BucketMemory(const NamedTensors& parameters, const Group& group)
    : parameters_(parameters),
      home_(parameters.size()),
      index_(parameters.size()),
      places_(parameters.size()),
      lent_(parameters.size()) {
  std::map<at::ScalarType, int64_t> elements;
  for (const auto& [name, p] : parameters_) {
    kinds_.push_back(
        {p.sizes().vec(), p.scalar_type(), p.numel(), static_cast<int64_t>(p.element_size())});
    elements[p.scalar_type()] += kinds_.back().lines();
  }
  for (const auto& [name, p] : parameters_) {
    at::Tensor& block = blocks_[p.scalar_type()];
    if (block.defined()) continue;
    block = group.empty({elements[p.scalar_type()]}, p.options().requires_grad(false));
    block.zero_();
  }
}

bool BucketMemory::bound(size_t i) const {
  const at::Tensor& grad = parameters_[i].second.grad();
  return grad.defined() && places_[i].defined() && grad.data_ptr() == places_[i].data_ptr();
}

GradientPlace BucketMemory::lend(size_t i) {
  GradBucketPart& p = part(i);
  p.finite.reset();
  lent_[i] = true;
  // A tensor of its own: its version tells whether autograd has added to it since.
  return {alias_of(buckets_[home_[i]].flat, p.offset, kinds_[i].sizes), &p.finite};
}

void BucketMemory::bind(size_t i) {
  const bool lent = lent_[i];
  lent_[i] = false;
  if (bound(i)) {
    if (!lent || parameters_[i].second.grad()._version() != 0) changed(i);
    return;
  }
  at::NoGradGuard no_grad;
  at::Tensor& grad = parameters_[i].second.mutable_grad();
  part(i).finite = copy_and_look(places_[i], grad);
  grad = places_[i];
}

void BucketMemory::lay_out(const std::vector<int>& order, const BucketSizes& sizes,
                           const std::vector<bool>& separate) {
  auto separate_bucket = [&](int i) {
    return !separate.empty() && separate[static_cast<size_t>(i)];
  };
  std::vector<int> sequence = order;
  std::stable_partition(sequence.begin(), sequence.end(),
                        [&](int i) { return !separate_bucket(i); });
  std::vector<BucketItem> items;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Kind& kind = kinds_[i];
    items.push_back(
        {kind.numel, static_cast<size_t>(kind.bytes),
         static_cast<int>(kind.dtype) + (separate_bucket(static_cast<int>(i)) ? kSeparate : 0)});
  }
  auto plan = plan_buckets(items, sequence, sizes);
  if (plan == plan_) return;
  plan_ = std::move(plan);

  at::NoGradGuard no_grad;
  // What the old places hold moves over, through a copy that lives until the end of this function.
  std::vector<at::Tensor> before(places_.size());
  std::vector<bool> was_bound(places_.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    was_bound[i] = bound(i);
    if (places_[i].defined()) before[i] = places_[i].clone();
  }
  std::map<at::ScalarType, int64_t> taken;
  buckets_.clear();
  for (const auto& members : plan_) {
    Bucket b;
    b.members = members;
    for (int m : members) b.elements += kinds_[static_cast<size_t>(m)].lines();
    const at::ScalarType dtype = kinds_[static_cast<size_t>(members[0])].dtype;
    b.flat = blocks_[dtype].narrow(0, taken[dtype], b.elements);
    taken[dtype] += b.elements;
    b.flat.zero_();
    int64_t offset = 0;
    for (int m : members) {
      const auto i = static_cast<size_t>(m);
      const auto& [name, p] = parameters_[i];
      home_[i] = buckets_.size();
      index_[i] = b.parts.size();
      places_[i] = alias_of(b.flat, offset, kinds_[i].sizes);
      if (before[i].defined()) places_[i].copy_(before[i]);
      if (was_bound[i]) p.mutable_grad() = places_[i];
      b.parts.push_back({i, name, offset, places_[i], {}});
      offset += kinds_[i].lines();
    }
    buckets_.push_back(std::move(b));
  }
}

}  // namespace trireme
