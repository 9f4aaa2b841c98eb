// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/algorithms.h"

#include "trireme/comm/group_check.h"
#include "trireme/comm/plan_run.h"

namespace trireme {
namespace {

constexpr const char* kWhat = "all_reduce_with";

/// Reductions have the same meaning for every algorithm and backend (see Group).
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
  check<UsageError>(static_cast<bool>(group), "run_plan: no group");
  detail::PlanRun run(plan, flat, op, tag, site);
  run.wait(*group.get(), group.timeout());
  return run.traffic();
}

PlanTraffic all_reduce_with(Group& group, at::Tensor tensor, Reduction op, Algorithm algorithm,
                            const AlgorithmOptions& options, CallSite site) {
  check<UsageError>(static_cast<bool>(group), "{}: no group", kWhat);
  detail::check_tensor(*group.get(), Collective::send, tensor, kWhat);
  check_op(op, tensor);
  at::NoGradGuard no_grad;
  // A half tensor is scaled in half precision, as Group does.
  if (op.factor != 1) tensor.detach().mul_(op.factor);
  const at::Tensor dense = tensor.detach().contiguous();
  detail::PlannedAllReduce call(*group.get(), dense, op.op, algorithm, options, site);
  call.wait(*group.get(), group.timeout());
  if (!dense.is_alias_of(tensor)) tensor.detach().copy_(dense);
  return call.traffic();
}

}  // namespace trireme
