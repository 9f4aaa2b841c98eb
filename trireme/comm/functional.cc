// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/functional.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/comm/group_check.h"

namespace trireme::functional {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// What backward needs of the call; saved_data holds only types that IValue supports, so the node
/// keeps this argument of apply().
struct Call {
  Group group;
  Reduction op;
  CallSite site;
  int root = 0;
  std::vector<int64_t> output_splits, input_splits;
};

/// Keeps the Call in the node.
struct Held : torch::CustomClassHolder {
  explicit Held(Call c) : call(std::move(c)) {}
  Call call;
};

void keep(AutogradContext* ctx, const Call& call) {
  ctx->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(call));
}
Call& kept(AutogradContext* ctx) {
  return static_cast<Held*>(ctx->saved_data["call"].toCapsule().get())->call;
}

at::Tensor fresh_copy(const at::Tensor& t) { return t.clone(at::MemoryFormat::Contiguous); }

void check_linear(Reduction op, const char* what) {
  check<UsageError>(op.op == ReduceOp::sum || op.op == ReduceOp::avg,
                    "functional::{}: only sum, avg and premul_sum have a gradient here", what);
}

struct AllReduce : Function<AllReduce> {
  static Variable forward(AutogradContext* ctx, Variable input, Call call) {
    keep(ctx, call);
    at::Tensor out = fresh_copy(input);
    call.group.all_reduce(out, call.op, call.site).wait();
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Call& call = kept(ctx);
    at::Tensor grad = fresh_copy(grads[0]);
    // Each rank's own factor multiplies its gradient.
    call.group.all_reduce(grad, call.op.op, call.site).wait();
    if (call.op.factor != 1) grad.mul_(call.op.factor);
    return {grad, Variable()};
  }
};

struct AllGather : Function<AllGather> {
  static Variable forward(AutogradContext* ctx, Variable input, Call call) {
    keep(ctx, call);
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.insert(sizes.begin(), call.group.size());
    at::Tensor out = at::empty(sizes, input.options().requires_grad(false));
    call.group.all_gather_into_tensor(out, input, call.site).wait();
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Call& call = kept(ctx);
    at::Tensor grad = at::empty(grads[0].sizes().slice(1), grads[0].options());
    call.group.reduce_scatter_tensor(grad, grads[0].contiguous(), ReduceOp::sum, call.site).wait();
    return {grad, Variable()};
  }
};

struct ReduceScatter : Function<ReduceScatter> {
  static Variable forward(AutogradContext* ctx, Variable input, Call call) {
    keep(ctx, call);
    at::Tensor out = at::empty(input.sizes().slice(1), input.options().requires_grad(false));
    call.group.reduce_scatter_tensor(out, input.contiguous(), call.op, call.site).wait();
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Call& call = kept(ctx);
    std::vector<int64_t> sizes = grads[0].sizes().vec();
    sizes.insert(sizes.begin(), call.group.size());
    at::Tensor grad = at::empty(sizes, grads[0].options());
    call.group.all_gather_into_tensor(grad, grads[0].contiguous(), call.site).wait();
    if (call.op.op == ReduceOp::avg) grad.div_(call.group.size());
    if (call.op.factor != 1) grad.mul_(call.op.factor);
    return {grad, Variable()};
  }
};

at::Tensor exchange(Call& call, const at::Tensor& input, const std::vector<int64_t>& output_splits,
                    const std::vector<int64_t>& input_splits) {
  std::vector<int64_t> sizes = input.sizes().vec();
  if (!output_splits.empty()) {
    sizes.at(0) = 0;
    for (int64_t rows : output_splits) sizes[0] += rows;
  }
  at::Tensor out = at::empty(sizes, input.options().requires_grad(false));
  call.group.all_to_all_single(out, input.contiguous(), output_splits, input_splits, call.site)
      .wait();
  return out;
}

struct AllToAll : Function<AllToAll> {
  static Variable forward(AutogradContext* ctx, Variable input, Call call) {
    keep(ctx, call);
    return exchange(call, input, call.output_splits, call.input_splits);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Call& call = kept(ctx);
    return {exchange(call, grads[0], call.input_splits, call.output_splits), Variable()};
  }
};

struct Broadcast : Function<Broadcast> {
  static Variable forward(AutogradContext* ctx, Variable input, Call call) {
    keep(ctx, call);
    at::Tensor out = fresh_copy(input);
    call.group.broadcast(out, call.root, call.site).wait();
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Call& call = kept(ctx);
    at::Tensor grad = fresh_copy(grads[0]);
    call.group.reduce(grad, call.root, ReduceOp::sum, call.site).wait();
    return {call.group.rank() == call.root ? grad : at::zeros_like(grad), Variable()};
  }
};

}  // namespace

at::Tensor all_reduce(const at::Tensor& input, Group group, Reduction op, CallSite site) {
  check_linear(op, "all_reduce");
  return AllReduce::apply(input, Call{std::move(group), op, site, 0, {}, {}});
}
at::Tensor all_gather(const at::Tensor& input, Group group, CallSite site) {
  return AllGather::apply(input, Call{std::move(group), {}, site, 0, {}, {}});
}
at::Tensor reduce_scatter(const at::Tensor& input, Group group, Reduction op, CallSite site) {
  check_linear(op, "reduce_scatter");
  check<UsageError>(input.defined() && input.dim() > 0 && input.size(0) == group.size(),
                    "functional::reduce_scatter: the first dim of the input must be the {} ranks",
                    group.size());
  return ReduceScatter::apply(input, Call{std::move(group), op, site, 0, {}, {}});
}
at::Tensor all_to_all_single(const at::Tensor& input, Group group,
                             std::vector<int64_t> output_splits, std::vector<int64_t> input_splits,
                             CallSite site) {
  check<UsageError>(output_splits.empty() == input_splits.empty(),
                    "functional::all_to_all_single: give both splits, or neither");
  return AllToAll::apply(
      input,
      Call{std::move(group), {}, site, 0, std::move(output_splits), std::move(input_splits)});
}
at::Tensor broadcast(const at::Tensor& input, Group group, int root, CallSite site) {
  return Broadcast::apply(input, Call{std::move(group), {}, site, root, {}, {}});
}

}  // namespace trireme::functional
