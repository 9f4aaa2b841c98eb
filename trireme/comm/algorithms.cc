// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/algorithms.h"

#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

#include "trireme/comm/group_check.h"

namespace trireme {
namespace {

constexpr const char* kWhat = "all_reduce_with";

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

/// What a reduction means is the same for every algorithm and backend (see Group).
void check_op(Reduction r, const at::Tensor& t) {
  const at::ScalarType dtype = t.scalar_type();
  const bool real = at::isFloatingType(dtype), complex = at::isComplexType(dtype);
  bool ok = true;
  switch (r.op) {
    case ReduceOp::sum:
      ok = dtype != at::kBool && (r.factor == 1 || real || complex);
      break;
    case ReduceOp::avg:
      ok = real || complex;
      break;
    case ReduceOp::min:
    case ReduceOp::max:
      ok = !complex;
      break;
    case ReduceOp::product:
      break;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      ok = !real && !complex;
      break;
  }
  check<UsageError>(ok, "{}: there is no such reduction of {}", kWhat, c10::toString(dtype));
}

}  // namespace

PlanTraffic run_plan(Group& group, const plan::Plan& plan, at::Tensor flat, ReduceOp op, int tag,
                     CallSite site) {
  at::NoGradGuard no_grad;
  check<UsageError>(flat.defined() && flat.dim() == 1 && flat.is_contiguous(),
                    "run_plan wants a flat contiguous tensor");
  const at::Tensor scratch =
      at::empty({static_cast<int64_t>(plan.scratch)}, flat.options().requires_grad(false));
  auto view = [&](const plan::Span& s) {
    return (s.scratch ? scratch : flat)
        .narrow(0, static_cast<int64_t>(s.at.begin), static_cast<int64_t>(s.at.size()));
  };
  PlanTraffic traffic;
  traffic.rounds = plan.rounds;
  const size_t item = flat.element_size();
  const auto& steps = plan.steps;
  for (size_t at = 0; at < steps.size();) {
    const int round = steps[at].round;
    std::vector<P2POp> moves;
    for (; at < steps.size() && steps[at].round == round && steps[at].kind != plan::Step::reduce;
         ++at) {
      const bool out = steps[at].kind == plan::Step::send;
      const uint64_t bytes = steps[at].span.at.size() * item;
      (out ? traffic.sent_bytes : traffic.received_bytes) += bytes;
      traffic.messages += out;
      moves.push_back(
          {out ? P2POp::isend : P2POp::irecv, view(steps[at].span), steps[at].peer, tag});
    }
    for (Work& work : group.batch_isend_irecv(moves, site)) work.wait();
    for (; at < steps.size() && steps[at].round == round; ++at) {
      const plan::Step& s = steps[at];
      const at::Tensor into = view(s.span), other = view(s.other);
      reduce_into(into, s.other_first ? other : into, s.other_first ? into : other, op);
    }
  }
  if (op == ReduceOp::avg) {
    const double scale = 1.0 / group.size();
    if (is_half(flat.scalar_type()))
      flat.copy_(flat.to(at::kFloat).mul_(scale));  // ATen would round the factor to a half
    else
      flat.mul_(scale);
  }
  return traffic;
}

PlanTraffic all_reduce_with(Group& group, at::Tensor tensor, Reduction op, Algorithm algorithm,
                            const AlgorithmOptions& options, CallSite site) {
  check<UsageError>(static_cast<bool>(group), "{}: no group", kWhat);
  detail::check_tensor(*group.get(), Collective::send, tensor, kWhat);
  check_op(op, tensor);
  const plan::Plan plan = make_plan(algorithm, group.rank(), group.size(),
                                    static_cast<size_t>(tensor.numel()), options.hosts);
  at::NoGradGuard no_grad;
  // Plans that keep the group's order keep its rounding as well.
  const bool widen = is_half(tensor.scalar_type()) && keeps_order(algorithm, options.hosts);
  at::Tensor work = tensor.detach().contiguous();
  if (widen) work = work.to(at::kFloat);
  work = work.view({-1});
  if (op.factor != 1) {
    // A half is scaled as a half, as Group does.
    tensor.detach().mul_(op.factor);
    if (!work.is_alias_of(tensor)) work.copy_(tensor.detach().reshape({-1}));
  }
  const PlanTraffic traffic = run_plan(group, plan, work, op.op, options.tag, site);
  if (!work.is_alias_of(tensor)) tensor.detach().copy_(work.view(tensor.sizes()));
  return traffic;
}

}  // namespace trireme
