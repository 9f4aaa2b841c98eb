// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/regions.h"

#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/check.h"
#include "trireme/layers/tensor_parallel/exchange.h"
#include "trireme/layers/tensor_parallel/kept.h"

namespace trireme::regions {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct Region {
  Group group;
  int64_t dim = 0, whole = 0, granule = 1;
  CallSite site;
  std::vector<Part> parts() const { return split_evenly(whole, group.size(), granule); }
};

// One name for the six, so that each can say which one is its backward.
struct CopyTo;
struct ReduceFrom;
struct ScatterTo;
struct GatherFrom;
struct GatherSequence;
struct ReduceScatterSequence;

template <class Self, class Conjugate>
struct Pair : Function<Self> {
  static Variable forward(AutogradContext* ctx, Variable x, Region region) {
    detail::keep(ctx, region);
    return Self::apply_to(x, region);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {Variable(), Variable()};
    return {Conjugate::apply(grads[0], detail::kept<Region>(ctx)), Variable()};
  }
};

struct CopyTo : Pair<CopyTo, ReduceFrom> {
  static at::Tensor apply_to(const at::Tensor& x, const Region&) { return x; }
};
struct ReduceFrom : Pair<ReduceFrom, CopyTo> {
  static at::Tensor apply_to(const at::Tensor& x, Region region) {
    const at::Tensor sum = detail::reachable_empty(region.group, x.sizes(), x);
    sum.copy_(x);
    region.group.all_reduce(sum, ReduceOp::sum, region.site).wait();
    return sum;
  }
};
struct ScatterTo : Pair<ScatterTo, GatherFrom> {
  static at::Tensor apply_to(const at::Tensor& x, const Region& region) {
    const Part part = region.parts()[static_cast<size_t>(region.group.rank())];
    return x.narrow(region.dim, part.begin, part.length).clone(at::MemoryFormat::Contiguous);
  }
};
struct GatherFrom : Pair<GatherFrom, ScatterTo> {
  static at::Tensor apply_to(const at::Tensor& x, const Region& region) {
    return detail::gather_parts(x, region.group, region.dim, region.parts(), region.site);
  }
};
struct GatherSequence : Pair<GatherSequence, ReduceScatterSequence> {
  static at::Tensor apply_to(const at::Tensor& x, const Region& region) {
    return detail::gather_parts(x, region.group, region.dim, region.parts(), region.site);
  }
};
struct ReduceScatterSequence : Pair<ReduceScatterSequence, GatherSequence> {
  static at::Tensor apply_to(const at::Tensor& x, const Region& region) {
    detail::ReduceScatter sum(region.group, x.sizes(), region.dim, region.parts(), x);
    sum.fill(x);
    sum.post(region.site);
    return sum.result();
  }
};

int64_t checked_dim(const at::Tensor& x, int64_t dim, const char* what) {
  check<UsageError>(x.defined() && dim >= -x.dim() && dim < x.dim(),
                    "regions::{}: dim {} of a tensor with {} dims", what, dim,
                    x.defined() ? x.dim() : 0);
  return dim < 0 ? dim + x.dim() : dim;
}

Region divided(const at::Tensor& x, const Group& group, int64_t dim, int64_t granule, CallSite site,
               const char* what) {
  dim = checked_dim(x, dim, what);
  const auto fault = fault_of_split("a dim", x.size(dim), group.size(), granule);
  check<UsageError>(fault.empty(), "regions::{}: {}", what, fault);
  return {group, dim, x.size(dim), granule, site};
}

Region gathered(const at::Tensor& x, const Group& group, int64_t dim, int64_t whole,
                int64_t granule, CallSite site, const char* what) {
  dim = checked_dim(x, dim, what);
  if (whole == 0) whole = x.size(dim) * group.size();
  const auto fault = fault_of_split("a dim", whole, group.size(), granule);
  check<UsageError>(fault.empty(), "regions::{}: {}", what, fault);
  Region region{group, dim, whole, granule, site};
  const Part mine = region.parts()[static_cast<size_t>(group.rank())];
  check<UsageError>(x.size(dim) == mine.length,
                    "regions::{}: rank {} of {} has {} of the {} elements of dim {}, and its part "
                    "is {}",
                    what, group.rank(), group.size(), x.size(dim), whole, dim, mine.length);
  return region;
}

}  // namespace

at::Tensor copy_to(const at::Tensor& x, const Group& group, CallSite site) {
  if (group.size() == 1) return x;
  return CopyTo::apply(x, Region{group, 0, 0, 1, site});
}
at::Tensor reduce_from(const at::Tensor& x, const Group& group, CallSite site) {
  if (group.size() == 1) return x;
  return ReduceFrom::apply(x, Region{group, 0, 0, 1, site});
}
at::Tensor scatter_to(const at::Tensor& x, const Group& group, int64_t dim, int64_t granule,
                      CallSite site) {
  if (group.size() == 1) return x;
  return ScatterTo::apply(x, divided(x, group, dim, granule, site, "scatter_to"));
}
at::Tensor gather_from(const at::Tensor& x, const Group& group, int64_t dim, int64_t whole,
                       int64_t granule, CallSite site) {
  const Region region = gathered(x, group, dim, whole, granule, site, "gather_from");
  return group.size() == 1 ? x : GatherFrom::apply(x, region);
}
at::Tensor gather_sequence(const at::Tensor& x, const Group& group, int64_t dim, int64_t whole,
                           CallSite site) {
  const Region region = gathered(x, group, dim, whole, 1, site, "gather_sequence");
  return group.size() == 1 ? x : GatherSequence::apply(x, region);
}
at::Tensor reduce_scatter_sequence(const at::Tensor& x, const Group& group, int64_t dim,
                                   CallSite site) {
  if (group.size() == 1) return x;
  return ReduceScatterSequence::apply(x,
                                      divided(x, group, dim, 1, site, "reduce_scatter_sequence"));
}

}  // namespace trireme::regions
