// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/layers/tensor_parallel/exchange.h"
#include "trireme/layers/tensor_parallel/kept.h"
#include "trireme/layers/tensor_parallel/linear.h"
#include "trireme/layers/tensor_parallel/regions.h"
#include "trireme/tensor/autocast_compat.h"
#include "trireme/tensor/gradient_place.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Product {
  Group group;
  bool sequence = false;  // the input (column) or the output (row) is divided over positions
  int64_t positions = 0;  // of all ranks
  bool widened = false;   // bfloat16 factors are multiplied as float32
  bool wants_x = true, wants_weight = true, wants_bias = false, has_bias = false;
  CallSite site;

  std::vector<Part> parts() const { return split_evenly(positions, group.size()); }
};

at::Tensor rows_of(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }
int64_t position_dim(const at::Tensor& t) { return t.dim() - 2; }

std::vector<int64_t> with_last(const at::Tensor& t, int64_t size) {
  auto sizes = t.sizes().vec();
  sizes.back() = size;
  return sizes;
}

// out = a · b, both 2-D. Without recording.
void multiply(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool widened) {
  at::Tensor to = out;
  if (widened)
    to.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
  else if (to.is_contiguous())
    at::mm_out(to, a, b);
  else
    to.copy_(at::mm(a, b));
}

// The product whose rows are divided over the ranks, each rank's rows straight into its slot.
void multiply_into(detail::ReduceScatter& sum, const Product& p, const at::Tensor& x,
                   const at::Tensor& b) {
  const auto parts = p.parts();
  for (int r = 0; r < p.group.size(); ++r) {
    const Part& part = parts[static_cast<size_t>(r)];
    at::Tensor slot = sum.slot(r);
    const at::Tensor rows = rows_of(x.narrow(position_dim(x), part.begin, part.length));
    if (slot.is_contiguous()) {
      multiply(slot.view({-1, slot.size(-1)}), rows, b, p.widened);
    } else {
      const at::Tensor apart = at::empty(slot.sizes(), slot.options());
      multiply(rows_of(apart), rows, b, p.widened);
      slot.copy_(apart);
    }
  }
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, bool widened) {
  if (!widened) return b.defined() ? at::linear(x, w, b) : at::linear(x, w);
  const auto wide = [](const at::Tensor& t) { return t.defined() ? t.to(at::kFloat) : t; };
  return at::linear(wide(x), wide(w), wide(b)).to(x.scalar_type());
}

// dW, where somebody offers a place for it there.
at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           bool widened) {
  const at::Tensor rows = rows_of(dy).t(), columns = rows_of(x);
  GradientPlace place;
  if (weight.is_leaf() && has_gradient_place(weight)) place = take_gradient_place(weight);
  at::Tensor out = place.memory.defined() && place.memory.scalar_type() == dy.scalar_type()
                       ? std::move(place.memory)
                       : at::empty(weight.sizes(), dy.options().requires_grad(false));
  multiply(out, rows, columns, widened);
  return out;
}

variable_list gradients(const Product& p, at::Tensor dx, at::Tensor dw, at::Tensor db) {
  variable_list all{std::move(dx), std::move(dw)};
  if (p.has_bias) all.push_back(std::move(db));
  all.emplace_back();  // of the Product
  return all;
}

// What this backward is to compute: the two halves of a pipeline's (pipeline/split_backward.h) want
// one gradient each.
Product wanted_now(AutogradContext* ctx) {
  Product p = detail::kept<Product>(ctx);
  p.wants_x = p.wants_x && ctx->needs_input_grad(0);
  p.wants_weight = p.wants_weight && ctx->needs_input_grad(1);
  p.wants_bias = p.wants_bias && ctx->needs_input_grad(2);
  return p;
}

struct ColumnProduct : Function<ColumnProduct> {
  // x, weight, and bias where there is one.
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors, Product p) {
    const at::Tensor &x = tensors[0], &weight = tensors[1];
    ctx->save_for_backward({x, weight});
    detail::keep(ctx, p);
    const at::Tensor whole =
        p.sequence ? detail::gather_parts(x, p.group, position_dim(x), p.parts(), p.site) : x;
    return linear(whole, weight, p.has_bias ? tensors[2] : at::Tensor(), p.widened);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Product p = wanted_now(ctx);
    const at::Tensor& dy = grads[0];
    if (!dy.defined()) return gradients(p, {}, {}, {});
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor db = p.wants_bias ? rows_of(dy).sum(0) : at::Tensor();
    if (c10::GradMode::is_enabled()) return again(p, dy, x, weight, db);

    // The input's gradient travels while the weight's is computed.
    at::Tensor whole = x;
    if (p.sequence && p.wants_weight)
      whole = detail::gather_parts(x, p.group, position_dim(x), p.parts(), p.site);
    at::Tensor dx;
    std::optional<detail::ReduceScatter> scattered;
    Work sum;
    if (p.wants_x && p.sequence) {
      auto sizes = with_last(dy, weight.size(1));
      scattered.emplace(p.group, sizes, position_dim(dy), p.parts(), dy);
      multiply_into(*scattered, p, dy, weight);
      scattered->post(p.site);
    } else if (p.wants_x) {
      dx = detail::reachable_empty(p.group, with_last(dy, weight.size(1)), dy);
      multiply(dx.view({-1, dx.size(-1)}), rows_of(dy), weight, p.widened);
      sum = p.group.all_reduce(dx, ReduceOp::sum, p.site);
    }
    const at::Tensor dw =
        p.wants_weight ? weight_gradient(dy, whole, weight, p.widened) : at::Tensor();
    if (scattered) {
      dx = scattered->result();
    } else {
      const Span span("exposed_comm", "wait for parts of layers");
      sum.wait();
    }
    return gradients(p, dx, dw, db);
  }

  // From functions that can be differentiated again.
  static variable_list again(const Product& p, const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& weight, const at::Tensor& db) {
    at::Tensor dx, dw;
    if (p.wants_weight) {
      const at::Tensor whole =
          p.sequence ? regions::gather_sequence(x, p.group, position_dim(x), p.positions, p.site)
                     : regions::copy_to(x, p.group, p.site);
      dw = rows_of(dy).t().mm(rows_of(whole));
    }
    if (p.wants_x) {
      dx = at::matmul(dy, weight);
      dx = p.sequence ? regions::reduce_scatter_sequence(dx, p.group, position_dim(dx), p.site)
                      : regions::reduce_from(dx, p.group, p.site);
    }
    return gradients(p, dx, dw, db);
  }
};

struct RowProduct : Function<RowProduct> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors, Product p) {
    const at::Tensor &x = tensors[0], &weight = tensors[1];
    ctx->save_for_backward({x, weight});
    detail::keep(ctx, p);
    const auto sizes = with_last(x, weight.size(0));
    at::Tensor out;
    if (p.sequence) {
      detail::ReduceScatter sum(p.group, sizes, position_dim(x), p.parts(), x);
      multiply_into(sum, p, x, weight.t());
      sum.post(p.site);
      out = sum.result();
    } else {
      out = detail::reachable_empty(p.group, sizes, x);
      multiply(out.view({-1, out.size(-1)}), rows_of(x), weight.t(), p.widened);
      const Span span("exposed_comm", "wait for parts of layers");
      p.group.all_reduce(out, ReduceOp::sum, p.site).wait();
    }
    if (p.has_bias) out.add_(tensors[2]);  // once, to the sum
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Product p = wanted_now(ctx);
    if (!grads[0].defined()) return gradients(p, {}, {}, {});
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor db = p.wants_bias ? rows_of(grads[0]).sum(0) : at::Tensor();
    if (c10::GradMode::is_enabled()) {
      const at::Tensor dy =
          p.sequence ? regions::gather_sequence(grads[0], p.group, position_dim(grads[0]),
                                                p.positions, p.site)
                     : regions::copy_to(grads[0], p.group, p.site);
      return gradients(p, p.wants_x ? at::matmul(dy, weight) : at::Tensor(),
                       p.wants_weight ? rows_of(dy).t().mm(rows_of(x)) : at::Tensor(), db);
    }
    const at::Tensor dy =
        p.sequence
            ? detail::gather_parts(grads[0], p.group, position_dim(grads[0]), p.parts(), p.site)
            : grads[0];
    at::Tensor dx, dw;
    if (p.wants_x) {
      dx = at::empty(x.sizes(), dy.options().requires_grad(false));
      multiply(dx.view({-1, dx.size(-1)}), rows_of(dy), weight, p.widened);
    }
    if (p.wants_weight) dw = weight_gradient(dy, x, weight, p.widened);
    return gradients(p, dx, dw, db);
  }
};

// Under autocast the factors are cast where autograd sees it, so that gradients come back in the
// parameters' dtype.
at::Tensor factor(const at::Tensor& t) {
  if (!t.defined()) return t;
  const auto autocast = compat::autocast_of(t.device().type());
  const bool casts = autocast.enabled && t.is_floating_point() && t.scalar_type() != at::kDouble;
  return casts ? t.to(autocast.dtype) : t;
}

struct Factors {
  at::Tensor x, weight, bias;
  Product product;
};

Factors checked(const char* layer, const at::Tensor& x, const at::Tensor& weight,
                const at::Tensor& bias, const TensorParallel& tp, HalfProducts products) {
  Factors f{factor(x), factor(weight), factor(bias), {}};
  check<UsageError>(f.x.dim() >= 1 && f.x.size(-1) == f.weight.size(1),
                    "{}: the last dim of the input is {}, and this rank's weight is [{}, {}]: "
                    "rank {} of {} takes {} inputs",
                    layer, f.x.dim() ? f.x.size(-1) : 0, f.weight.size(0), f.weight.size(1),
                    tp.rank(), tp.size(), f.weight.size(1));
  check<UsageError>(f.x.scalar_type() == f.weight.scalar_type(),
                    "{}: the input is {} and the weight {}: convert one of them, or use autocast",
                    layer, c10::toString(f.x.scalar_type()), c10::toString(f.weight.scalar_type()));
  check<UsageError>(!tp.sequence_parallel() || tp.size() == 1 || f.x.dim() >= 2,
                    "{}: with sequence_parallel the input has a dim of positions before the last "
                    "one: [batch, positions, width]",
                    layer);
  f.product.group = tp.group();
  f.product.sequence = tp.sequence_parallel();
  f.product.widened = products == HalfProducts::widened && f.x.device().is_cpu() &&
                      f.x.scalar_type() == at::kBFloat16;
  f.product.wants_x = f.x.requires_grad();
  f.product.wants_weight = f.weight.requires_grad();
  f.product.has_bias = f.bias.defined();
  f.product.wants_bias = f.product.has_bias && f.bias.requires_grad();
  return f;
}

at::Tensor plain(const Factors& f) { return linear(f.x, f.weight, f.bias, f.product.widened); }

}  // namespace

at::Tensor column_parallel_linear(const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& bias, const TensorParallel& tp,
                                  int64_t sequence, HalfProducts products) {
  Factors f = checked("ColumnParallelLinear", x, weight, bias, tp, products);
  if (tp.size() == 1) return plain(f);
  Product& p = f.product;
  p.site = CallSite::here();
  if (p.sequence) {
    const int64_t mine = f.x.size(-2);
    p.positions = sequence ? sequence : mine * tp.size();
    const auto fault = fault_of_split("a sequence", p.positions, tp.size());
    check<UsageError>(fault.empty(), "ColumnParallelLinear: {}", fault);
    const int64_t due = p.parts()[static_cast<size_t>(tp.rank())].length;
    check<UsageError>(mine == due,
                      "ColumnParallelLinear: rank {} of {} was given {} positions of a sequence of "
                      "{}, and its part is {}: divide it with regions::scatter_to()",
                      tp.rank(), tp.size(), mine, p.positions, due);
  } else {
    tp.check_equal(f.x, "the input of a ColumnParallelLinear");
  }
  return p.has_bias ? ColumnProduct::apply(at::TensorList({f.x, f.weight, f.bias}), p)
                    : ColumnProduct::apply(at::TensorList({f.x, f.weight}), p);
}

at::Tensor row_parallel_linear(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, const TensorParallel& tp,
                               HalfProducts products) {
  Factors f = checked("RowParallelLinear", x, weight, bias, tp, products);
  if (tp.size() == 1) return plain(f);
  Product& p = f.product;
  p.site = CallSite::here();
  if (p.sequence) {
    p.positions = f.x.size(-2);
    const auto fault = fault_of_split("a sequence", p.positions, tp.size());
    check<UsageError>(fault.empty(), "RowParallelLinear: {}", fault);
  }
  return p.has_bias ? RowProduct::apply(at::TensorList({f.x, f.weight, f.bias}), p)
                    : RowProduct::apply(at::TensorList({f.x, f.weight}), p);
}

}  // namespace trireme
