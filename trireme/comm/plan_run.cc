// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan_run.h"

#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

#include "trireme/base/check.h"
#include "trireme/comm/group_check.h"

namespace trireme::detail {
namespace {

void reduce_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      at::add_out(out, a, b);
      return;
    case ReduceOp::min:
      at::minimum_out(out, a, b);
      return;
    case ReduceOp::max:
      at::maximum_out(out, a, b);
      return;
    case ReduceOp::product:
      at::mul_out(out, a, b);
      return;
    case ReduceOp::band:
      at::bitwise_and_out(out, a, b);
      return;
    case ReduceOp::bor:
      at::bitwise_or_out(out, a, b);
      return;
    case ReduceOp::bxor:
      at::bitwise_xor_out(out, a, b);
      return;
  }
}

bool is_half(at::ScalarType t) { return t == at::kHalf || t == at::kBFloat16; }

// Plans that keep the group's order also keep its rounding.
at::Tensor working_copy(const at::Tensor& tensor, Algorithm algorithm,
                        const AlgorithmOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor work = tensor.detach();
  if (is_half(tensor.scalar_type()) && keeps_order(algorithm, options.hosts))
    work = work.to(at::kFloat);
  return work.view({-1});
}

}  // namespace

PlanRun::PlanRun(plan::Plan plan, const at::Tensor& flat, ReduceOp op, int tag, CallSite site)
    : plan_(std::move(plan)), flat_(flat), op_(op), tag_(tag), site_(site) {
  check<UsageError>(flat.defined() && flat.dim() == 1 && flat.is_contiguous(),
                    "run_plan needs a flat contiguous tensor");
  scratch_ = at::empty({static_cast<int64_t>(plan_.scratch)}, flat.options().requires_grad(false));
  traffic_.rounds = plan_.rounds;
}

at::Tensor PlanRun::view(const plan::Span& s) const {
  return (s.scratch ? scratch_ : flat_)
      .narrow(0, static_cast<int64_t>(s.at.begin), static_cast<int64_t>(s.at.size()));
}

// Receives first, so that arriving data finds its place. No call waits, so no order can deadlock.
void PlanRun::post_round(Backend& backend) {
  const auto& steps = plan_.steps;
  round_ = steps[next_].round;
  size_t end = next_;
  while (end < steps.size() && steps[end].round == round_ && steps[end].kind != plan::Step::reduce)
    ++end;
  for (auto kind : {plan::Step::recv, plan::Step::send})
    for (size_t at = next_; at < end; ++at) {
      const plan::Step& s = steps[at];
      if (s.kind != kind) continue;
      const bool out = kind == plan::Step::send;
      (out ? traffic_.sent_bytes : traffic_.received_bytes) +=
          s.span.at.size() * flat_.element_size();
      traffic_.messages += out;
      const at::Tensor part = view(s.span);
      open_.push_back(backend.post({.op = out ? Collective::send : Collective::recv,
                                    .root = s.peer,
                                    .tag = tag_,
                                    .input = &part,
                                    .output = &part,
                                    .site = site_}));
    }
  next_ = end;
}

void PlanRun::reduce_round() {
  at::NoGradGuard no_grad;
  const auto& steps = plan_.steps;
  for (; next_ < steps.size() && steps[next_].round == round_; ++next_) {
    const plan::Step& s = steps[next_];
    const at::Tensor into = view(s.span), other = view(s.other);
    reduce_into(into, s.other_first ? other : into, s.other_first ? into : other, op_);
  }
  round_ = -1;
}

void PlanRun::finish(int ranks) {
  done_ = true;
  if (op_ != ReduceOp::avg) return;
  at::NoGradGuard no_grad;
  const double scale = 1.0 / ranks;
  if (is_half(flat_.scalar_type()))
    flat_.copy_(flat_.to(at::kFloat).mul_(scale));  // ATen would round the factor to a half
  else
    flat_.mul_(scale);
}

bool PlanRun::advance(Backend& backend) {
  while (!done_) {
    while (!open_.empty()) {
      if (open_.back().kind && !backend.completed(open_.back())) return false;
      open_.pop_back();
    }
    if (round_ >= 0) reduce_round();
    if (next_ == plan_.steps.size())
      finish(backend.size());
    else
      post_round(backend);
  }
  return true;
}

void PlanRun::wait(Backend& backend, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  while (!advance(backend))
    if (open_.back().kind) backend.wait(open_.back(), deadline.remaining());
}

PlannedAllReduce::PlannedAllReduce(Backend& backend, const at::Tensor& tensor, ReduceOp op,
                                   Algorithm algorithm, const AlgorithmOptions& options,
                                   CallSite site)
    : tensor_(tensor),
      work_(working_copy(tensor, algorithm, options)),
      run_(make_plan(algorithm, backend.rank(), backend.size(), static_cast<size_t>(tensor.numel()),
                     options.hosts),
           work_, op, options.tag, site) {}

void PlannedAllReduce::copy_back() {
  at::NoGradGuard no_grad;
  if (!work_.is_alias_of(tensor_)) tensor_.detach().copy_(work_.view(tensor_.sizes()));
}

bool PlannedAllReduce::advance(Backend& backend) {
  if (!run_.advance(backend)) return false;
  copy_back();
  return true;
}

void PlannedAllReduce::wait(Backend& backend, Duration timeout) {
  run_.wait(backend, timeout);
  copy_back();
}

}  // namespace trireme::detail
