// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"

namespace trireme {
namespace {

// An alias that autograd does not count as a view, so that zero_grad() and in-place adds are
// allowed on it.
at::Tensor alias_of(const at::Tensor& flat, int64_t offset, const at::Tensor& like) {
  auto* p =
      static_cast<char*>(flat.data_ptr()) + offset * static_cast<int64_t>(flat.element_size());
  return at::from_blob(
      p, like.sizes(), [flat](void*) {}, flat.options());
}

int64_t line_of(const at::Tensor& p) { return 64 / static_cast<int64_t>(p.element_size()); }

BucketItem item_of(const at::Tensor& p) {
  return {p.numel(), static_cast<size_t>(p.element_size()), static_cast<int>(p.scalar_type())};
}

}  // namespace

Reducer::Reducer(NamedTensors parameters, Group group, ReducerOptions options)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      options_(std::move(options)),
      slots_(parameters_.size()) {
  for (const auto& [name, p] : parameters_) {
    check<UsageError>(group_.supports(Collective::all_reduce, p.scalar_type(), p.device().type()),
                      "parameter '{}' is {} on {}, which the {} backend cannot reduce", name,
                      c10::toString(p.scalar_type()), c10::DeviceTypeName(p.device().type(), true),
                      group_.backend());
    check<UsageError>(p.is_floating_point(), "parameter '{}' is {}: gradients are floating", name,
                      c10::toString(p.scalar_type()));
  }
  if (!options_.hook)
    options_.hook = [](Group& g, GradBucket& bucket, ReduceOp op) {
      return g.all_reduce(bucket.buffer, op);
    };
  // Until the true order is known: last parameters get their gradients first.
  std::vector<int> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  build(order);
}

Reducer::~Reducer() = default;

// All buckets of a dtype lie in one block, large enough for any plan: a rebuild lays it out anew
// and takes no second one.
void Reducer::allocate_blocks() {
  std::map<at::ScalarType, int64_t> elements;
  for (const auto& [name, p] : parameters_) {
    const int64_t line = line_of(p);
    // Its place, its used flag, and the worst case of a bucket of its own: a weight and a fresh
    // line.
    elements[p.scalar_type()] += (p.numel() + line - 1) / line * line + 2 + line;
  }
  for (const auto& [name, p] : parameters_) {
    at::Tensor& block = blocks_[p.scalar_type()];
    if (block.defined()) continue;
    block = group_.empty({elements[p.scalar_type()]}, p.options().requires_grad(false));
    block.zero_();
  }
}

void Reducer::build(const std::vector<int>& order) {
  at::NoGradGuard no_grad;
  if (blocks_.empty()) allocate_blocks();
  // A rebuild: what the old buckets hold moves over, through a copy that lives until the end of
  // this function.
  std::vector<at::Tensor> before(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].alias.defined()) before[i] = slots_[i].alias.clone();
  std::vector<BucketItem> items;
  for (const auto& [name, p] : parameters_) items.push_back(item_of(p));
  std::map<at::ScalarType, int64_t> taken;
  buckets_.clear();
  for (auto& members : plan_buckets(items, order, options_.sizes)) {
    Bucket b;
    b.members = std::move(members);
    const at::Tensor& first = parameter(static_cast<size_t>(b.members[0]));
    const int64_t line = line_of(first);
    for (int m : b.members) {
      Slot& s = slots_[static_cast<size_t>(m)];
      s.bucket = buckets_.size();
      s.offset = b.gradients;
      b.gradients += (parameter(static_cast<size_t>(m)).numel() + line - 1) / line *
                     line;  // each on its own cache line
    }
    const int64_t length = b.gradients + static_cast<int64_t>(b.members.size()) + 1;
    int64_t& start = taken[first.scalar_type()];
    b.flat = blocks_[first.scalar_type()].narrow(0, start, length);
    start += (length + line - 1) / line * line;
    b.flat.zero_();
    buckets_.push_back(std::move(b));
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& s = slots_[i];
    const at::Tensor& p = parameter(i);
    const bool bound =
        s.alias.defined() && p.grad().defined() && p.grad().data_ptr() == s.alias.data_ptr();
    s.alias = alias_of(buckets_[s.bucket].flat, s.offset, p);
    if (before[i].defined()) s.alias.copy_(before[i]);
    if (bound) p.mutable_grad() = s.alias;
  }
}

void Reducer::open(int contributions) {
  check<UsageError>(
      !open_, "a round of gradients is open already: close() it, or reset() after an exception");
  check<UsageError>(contributions > 0, "a round with {} contributions", contributions);
  open_ = true;
  contributions_ = contributions;
  next_launch_ = full_buckets_ = 0;
  arrival_.clear();
  for (auto& s : slots_) {
    s.contributions = 0;
    s.before = at::Tensor();
  }
  for (auto& b : buckets_) {
    b.waiting = b.members.size();
    b.flushed = false;
  }
}

void Reducer::ready(size_t i) {
  check<UsageError>(open_, "gradient of '{}' outside a round", name(i));
  Slot& s = slots_[i];
  check<UsageError>(s.contributions < contributions_,
                    "parameter '{}' got more gradients in this round than the {} expected. Two "
                    "backwards in one round, or a "
                    "parameter used by a nested backward?",
                    name(i), contributions_);
  const at::Tensor& p = parameter(i);
  at::Tensor& grad = p.mutable_grad();
  check<UsageError>(grad.defined(), "parameter '{}' is ready without a gradient", name(i));
  check<UsageError>(!grad.requires_grad(),
                    "backward(create_graph=true) through DistributedDataParallel: the gradient of "
                    "'{}' would not be reduced with its graph. Use torch::autograd::grad instead",
                    name(i));
  check<UsageError>(grad.scalar_type() == s.alias.scalar_type() && grad.sizes() == s.alias.sizes(),
                    "the gradient of '{}' is {} now; it was {} when DistributedDataParallel was "
                    "built. Build it after to(dtype)",
                    name(i), c10::toString(grad.scalar_type()),
                    c10::toString(s.alias.scalar_type()));
  // From the first contribution on, so that what follows accumulates in the bucket and there is no
  // second copy of the gradients.
  if (grad.data_ptr() != s.alias.data_ptr()) {
    at::NoGradGuard no_grad;
    s.alias.copy_(grad);
    grad = s.alias;
  }
  if (++s.contributions < contributions_) return;
  arrival_.push_back(static_cast<int>(i));
  if (--buckets_[s.bucket].waiting == 0) {
    ++full_buckets_;
    launch_full();
  }
  group_.progress();
}

void Reducer::launch_full() {
  while (next_launch_ < buckets_.size() && buckets_[next_launch_].waiting == 0)
    launch(next_launch_++);
}

void Reducer::launch(size_t index) {
  Bucket& b = buckets_[index];
  at::NoGradGuard no_grad;
  std::vector<double> tail;
  for (int m : b.members) tail.push_back(slots_[static_cast<size_t>(m)].contributions > 0);
  tail.push_back(index + 1 == buckets_.size() ? weight_ : 0);
  b.flat.narrow(0, b.gradients, static_cast<int64_t>(tail.size()))
      .copy_(at::tensor(tail, at::kDouble));
  GradBucket bucket{static_cast<int>(index), index + 1 == buckets_.size(), b.flat, b.gradients};
  b.work = options_.hook(group_, bucket, options_.op);
  ++stats_.launches;
  stats_.bytes += static_cast<int64_t>(b.flat.nbytes());
}

// This rank has no complete gradient for some members: they give what they have, else zeros.
void Reducer::fill_unused(Bucket& b) {
  at::NoGradGuard no_grad;
  for (int m : b.members) {
    Slot& s = slots_[static_cast<size_t>(m)];
    if (s.contributions == contributions_) continue;
    at::Tensor& grad = parameter(static_cast<size_t>(m)).mutable_grad();
    s.had_gradient = grad.defined();
    if (!grad.defined())
      s.alias.zero_();
    else if (grad.data_ptr() != s.alias.data_ptr())
      s.alias.copy_(grad);
    if (s.contributions == 0) s.before = s.had_gradient ? s.alias.clone() : at::empty({0});
  }
  b.flushed = true;
}

void Reducer::read_tail(Bucket& b) {
  at::Tensor tail =
      b.flat.narrow(0, b.gradients, static_cast<int64_t>(b.members.size()) + 1).to(at::kDouble);
  const double* t = static_cast<const double*>(tail.data_ptr());
  const double scale = options_.op == ReduceOp::avg ? group_.size() : 1;
  for (size_t k = 0; k < b.members.size(); ++k) {
    Slot& s = slots_[static_cast<size_t>(b.members[k])];
    at::Tensor& grad = parameter(static_cast<size_t>(b.members[k])).mutable_grad();
    s.used_by_any = t[k] > 0;
    if (s.used_by_any) {
      if (!grad.defined() || grad.data_ptr() != s.alias.data_ptr()) grad = s.alias;
    } else if (s.before.defined() && s.had_gradient) {
      s.alias.copy_(s.before);
    }
    s.before = at::Tensor();
  }
  if (&b == &buckets_.back()) total_weight_ = t[b.members.size()] * scale;
}

void Reducer::close() {
  check<UsageError>(open_, "close() without open()");
  for (auto& b : buckets_)
    if (b.waiting) {
      fill_unused(b);
      b.waiting = 0;
    }
  launch_full();
  {
    Span span("exposed_comm", "wait for gradients");
    for (auto& b : buckets_) {
      b.work.wait();
      b.work = Work();
    }
  }
  at::NoGradGuard no_grad;
  for (auto& b : buckets_) read_tail(b);
  open_ = false;
  ++stats_.rounds;
  if (!rebuilt_) rebuild_in_rank0_order();
}

// Parameters arrive in an order that only the first backward shows. Rank 0's counts for all.
void Reducer::rebuild_in_rank0_order() {
  rebuilt_ = true;
  std::vector<bool> seen(size());
  std::vector<int> order;
  for (int i : arrival_)
    if (!seen[static_cast<size_t>(i)]) seen[static_cast<size_t>(i)] = true, order.push_back(i);
  for (int i = static_cast<int>(size()) - 1; i >= 0; --i)
    if (!seen[static_cast<size_t>(i)]) order.push_back(i);
  at::Tensor wire = at::tensor(order, at::kInt);
  group_.broadcast(wire, 0).wait();
  std::copy_n(static_cast<const int*>(wire.data_ptr()), order.size(), order.begin());
  std::vector<std::vector<int>> before = buckets();
  std::vector<BucketItem> items;
  for (const auto& [name, p] : parameters_) items.push_back(item_of(p));
  if (plan_buckets(items, order, options_.sizes) != before) build(order);
}

void Reducer::reset() {
  for (auto& b : buckets_)
    if (!b.work.is_completed()) b.work.wait();
  open_ = false;
}

std::vector<std::vector<int>> Reducer::buckets() const {
  std::vector<std::vector<int>> lists;
  for (const auto& b : buckets_) lists.push_back(b.members);
  return lists;
}

}  // namespace trireme
