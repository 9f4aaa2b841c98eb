// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/grad/bucket_memory.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/numbers_of.h"

namespace trireme {

Reducer::Reducer(NamedTensors parameters, Group group, ReducerOptions options)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      options_(std::move(options)),
      memory_((check_reducible(parameters_, group_),
               std::make_unique<BucketMemory>(parameters_, group_))),
      record_(group_, parameters_.size(),
              parameters_.empty() ? at::Device(at::kCPU) : parameters_[0].second.device()),
      slots_(parameters_.size()) {
  if (!options_.hook)
    options_.hook = [](Group& g, GradBucket& bucket, ReduceOp op) {
      return g.all_reduce(bucket.buffer, op);
    };
  // Until the real order is known: the last parameters get their gradients first.
  std::vector<int> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  memory_->lay_out(order, options_.sizes, options_.delayed);
  expect(1);
}

Reducer::~Reducer() = default;

void Reducer::expect(std::vector<int> contributions) {
  for (size_t i = 0; i < size(); ++i)
    slots_[i].expected =
        !options_.delayed.empty() && options_.delayed[i] ? kAtClose : contributions[i];
}

void Reducer::expect(int contributions) {
  check<UsageError>(contributions > 0, "a round with {} contributions", contributions);
  expect(std::vector<int>(size(), contributions));
}

void Reducer::open() {
  check<UsageError>(
      !open_, "a round of gradients is open already: close() it, or reset() after an exception");
  open_ = true;
  record_sent_ = false;
  launched_ = 0;
  arrival_.clear();
  flights_ = std::vector<Flight>(memory_->buckets().size());
  for (size_t i = 0; i < size(); ++i) {
    slots_[i].got = 0;
    slots_[i].before = at::Tensor();
    if (slots_[i].expected > 0) ++flights_[memory_->bucket_index(i)].waiting;
  }
}

// Nothing may be written to a bucket in flight, because other ranks may already have summed it, nor
// over a gradient that is already there.
GradientPlace Reducer::offer(size_t i) {
  Slot& s = slots_[i];
  if (s.lent || (open_ && (s.got > 0 || memory_->bucket_index(i) < launched_))) return {};
  s.lent = true;
  return memory_->lend(i);
}

void Reducer::ready(size_t i) {
  if (!open_) [[unlikely]]
    fail<UsageError>("gradient of '{}' outside a round", name(i));
  Slot& s = slots_[i];
  if (s.got >= s.expected) [[unlikely]]
    refuse_more(i);
  check_gradient(name(i), parameter(i).grad(), gradient(i));
  // From the first contribution on, so that later ones accumulate in the bucket and there is no
  // second copy of the gradients.
  memory_->bind(i);
  ++s.got;
  if (s.got == 1 && s.expected == kAtClose) arrival_.push_back(static_cast<int>(i));
  if (s.got < s.expected) return;
  arrival_.push_back(static_cast<int>(i));
  if (--flights_[memory_->bucket_index(i)].waiting == 0) launch_full(false);
  group_.progress();
}

// The gradient has been added to a bucket that may be in flight: other ranks may already have
// summed it, so this cannot be undone.
void Reducer::refuse_more(size_t i) {
  const std::string what = fmt::format(
      "parameter '{}' got more gradients in this round than the {} expected: two backwards in one "
      "round, or a part of the graph that runs backward by itself. DdpOptions::static_graph counts "
      "them in the first round",
      name(i), slots_[i].expected);
  const int rank = group_.world_ranks()[static_cast<size_t>(group_.rank())];
  group_.abort(fmt::format("rank {}: {}", rank, what));
  throw UsageError(what);
}

void Reducer::launch_full(bool closing) {
  while (launched_ < flights_.size() && flights_[launched_].waiting == 0) launch(launched_++);
  if (launched_ < flights_.size() || record_sent_) return;
  // What it says of gradients on a device is known when the device has come to it, and a hook does
  // not wait for that.
  if (!closing && is_asynchronous(parameters_.front().second.device())) return;
  record_sent_ = true;
  std::vector<bool> used;
  // A gradient that has been dropped since then does not count.
  for (size_t i = 0; i < size(); ++i)
    used.push_back(slots_[i].got > 0 || (slots_[i].outside && parameter(i).grad().defined()));
  record_.send(used);
}

void Reducer::launch(size_t index) {
  for (int m : memory_->buckets()[index].members) fill(static_cast<size_t>(m));
  try {
    reduce(index);
  } catch (const Error& e) {
    if (!is_fact_of_the_group(e)) group_.abort(hook_failure(group_.rank(), index, e.what()));
    throw;
  } catch (const std::exception& e) {
    group_.abort(hook_failure(group_.rank(), index, e.what()));
    throw;
  }
}

void Reducer::reduce(size_t index) {
  const BucketMemory::Bucket& b = memory_->buckets()[index];
  GradBucket bucket{static_cast<int>(index), index + 1 == flights_.size(), b.flat, &b.parts};
  flights_[index].work = options_.hook(group_, bucket, options_.op);
  check<UsageError>(bucket.buffer.is_same(b.flat) && b.flat.numel() == b.elements,
                    "the communication hook replaced the tensor of bucket {} or changed its shape; "
                    "write the result into bucket.buffer",
                    index);
  ++stats_.launches;
  stats_.bytes += static_cast<int64_t>(b.flat.nbytes());
}

// A parameter without a complete gradient on this rank contributes what it has, else zeros.
void Reducer::fill(size_t i) {
  Slot& s = slots_[i];
  if (s.got == s.expected && s.got > 0) return;
  at::NoGradGuard no_grad;
  memory_->changed(i);
  const at::Tensor& grad = parameter(i).grad();
  if (s.got == 0) s.before = grad.defined() ? grad.clone() : at::Tensor();
  if (!grad.defined())
    gradient(i).zero_();
  else if (!memory_->bound(i))
    gradient(i).copy_(grad);
}

void Reducer::settle(size_t i) {
  Slot& s = slots_[i];
  if (record_.used_by(i) > 0) {
    if (!memory_->bound(i)) parameter(i).mutable_grad() = gradient(i);
  } else if (s.before.defined()) {
    at::NoGradGuard no_grad;
    parameter(i).mutable_grad().copy_(s.before);
  }
  s.before = at::Tensor();
}

void Reducer::close() {
  check<UsageError>(open_, "close() without open()");
  for (Flight& f : flights_) f.waiting = 0;
  launch_full(true);
  {
    Span span("exposed_comm", "wait for gradients");
    for (Flight& f : flights_) f.work.wait();
    record_.read();
  }
  for (size_t i = 0; i < size(); ++i) settle(i);
  for (Slot& s : slots_) s.lent = s.outside = false;
  open_ = false;
  if (stats_.rounds++ == 0) lay_out_in_rank0_order();
}

// The order in which gradients arrive is known only after the first backward; every rank takes that
// of rank 0.
void Reducer::lay_out_in_rank0_order() {
  std::vector<bool> seen(size());
  std::vector<int> order;
  auto take = [&](int i) {
    if (!seen[static_cast<size_t>(i)]) order.push_back(i);
    seen[static_cast<size_t>(i)] = true;
  };
  for (int i : arrival_) take(i);
  for (int i = static_cast<int>(size()) - 1; i >= 0; --i) take(i);
  const at::Tensor wire = at::tensor(order, at::TensorOptions(at::kInt).device(record_.device()));
  group_.broadcast(wire, 0).wait();
  order_ = numbers_of<int>(wire);
  memory_->lay_out(order_, options_.sizes, options_.delayed);
}

void Reducer::lay_out(const BucketSizes& sizes, BucketOrder order) {
  check<UsageError>(!open_, "buckets cannot be rearranged during a round");
  options_.sizes = sizes;
  std::vector<int> sequence = order_;
  if (order == BucketOrder::registration || order_.empty()) {
    sequence.resize(size());
    std::iota(sequence.rbegin(), sequence.rend(), 0);
  }
  memory_->lay_out(sequence, sizes, options_.delayed);
}

void Reducer::state(StateVisitor& visitor) {
  std::vector<int> shown = order_;
  if (shown.empty()) {
    shown.resize(size());
    std::iota(shown.rbegin(), shown.rend(), 0);
  }
  at::Tensor wire = at::tensor(shown, at::kInt);
  visitor.tensor("reducer.order", wire);
  std::vector<int> now = numbers_of<int>(wire);
  if (now == shown) return;
  std::vector<int> sorted = now;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < size(); ++i)
    check<Corrupt>(sorted[i] == static_cast<int>(i),
                   "reducer.order is not a permutation of {} parameters: use another checkpoint",
                   size());
  order_ = std::move(now);
  memory_->lay_out(order_, options_.sizes, options_.delayed);
}

void Reducer::reset() {
  for (Flight& f : flights_)
    if (!f.work.is_completed()) f.work.wait();
  for (Slot& s : slots_) s.lent = s.outside = false;
  open_ = false;
}

const at::Tensor& Reducer::gradient(size_t i) const { return memory_->place(i); }

void Reducer::scale(double factor) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < size(); ++i)
    if (record_.used_by(i) > 0) gradient(i).mul_(factor);
}

std::vector<std::vector<int>> Reducer::buckets() const {
  std::vector<std::vector<int>> lists;
  for (const auto& b : memory_->buckets()) lists.push_back(b.members);
  return lists;
}

}  // namespace trireme
