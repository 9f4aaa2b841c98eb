// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

NamedTensors shared_of(const torch::nn::Module& module, const TensorParallel& tp) {
  const auto layouts = layouts_of(module);
  NamedTensors shared;
  for (const auto& [name, p] : named_parameters(module))
    if (p.requires_grad() && layouts.at(name).on(tp.axis()) == OnAxis::sum)
      shared.emplace_back(name, p);
  return shared;
}

// The squares of a gradient that are counted here.
at::Tensor counted_squares(const at::Tensor& grad, const ParameterLayout& layout) {
  const at::Tensor wide = grad.detach().to(at::kDouble);
  at::Tensor sum = at::zeros({}, wide.options());
  int64_t row = 0;
  for (const Box& box : layout.boxes) {
    const at::Tensor part = layout.boxes.size() == 1 ? wide : wide.narrow(0, row, box.lengths[0]);
    if (box.counted) sum.add_(part.mul(part).sum());
    if (!box.lengths.empty()) row += box.lengths[0];
  }
  return sum;
}

constexpr const char* kNoGradients =
    "clip_grad_norm: no parameter of the module has a gradient. Call it after backward; under ZeRO "
    "the shards have them: clip_grad_norm(sharded, tp.group(), max_norm) (shard/divided_shards.h)";

bool any_gradient(const torch::nn::Module& module) {
  for (const at::Tensor& p : module.parameters())
    if (p.grad().defined()) return true;
  return false;
}

}  // namespace

void add_shared_gradients(const torch::nn::Module& module, const TensorParallel& tp) {
  if (tp.size() == 1) return;
  at::NoGradGuard no_grad;
  const auto shared = shared_of(module, tp);
  if (shared.empty()) return;
  // Which of them each rank has used: one that no rank has used stays without.
  const auto device = shared[0].second.device();
  const auto count = static_cast<int64_t>(shared.size());
  at::Tensor used = at::zeros({count}, at::kInt);
  for (int64_t i = 0; i < count; ++i)
    if (shared[static_cast<size_t>(i)].second.grad().defined()) used[i].fill_(1);
  used = used.to(device);
  Group group = tp.group();
  group.all_reduce(used).wait();
  used = used.cpu();
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (int64_t i = 0; i < count; ++i) {
    at::Tensor p = shared[static_cast<size_t>(i)].second;
    if (used[i].item<int>() == 0) continue;
    if (!p.grad().defined()) p.mutable_grad() = at::zeros_like(p);
    check<UsageError>(!p.grad().is_sparse(),
                      "add_shared_gradients: the gradient of '{}' is sparse: make it dense",
                      shared[static_cast<size_t>(i)].first);
    by_dtype[p.scalar_type()].push_back(p.grad());
  }
  for (const auto& [dtype, gradients] : by_dtype)
    group.all_reduce_coalesced(gradients, ReduceOp::sum).wait();
}

double clip_grad_norm(const torch::nn::Module& module, const TensorParallel& tp, double max_norm) {
  check<UsageError>(max_norm >= 0, "clip_grad_norm: the limit is {}, and must not be negative",
                    max_norm);
  at::NoGradGuard no_grad;
  const auto layouts = layouts_of(module);
  const auto parameters = named_parameters(module);
  if (parameters.empty()) return 0;
  // Added over the ranks: what is split. Equal on all of them: the rest.
  const auto options = at::TensorOptions(at::kDouble).device(parameters[0].second.device());
  // Behind the squares, how many ranks have any gradient.
  at::Tensor split = at::zeros({2}, options), whole = at::zeros({}, options);
  if (any_gradient(module)) split[1].fill_(1);
  for (const auto& [name, p] : parameters) {
    if (!p.grad().defined()) continue;
    const auto& layout = layouts.at(name);
    const bool is_split = layout.on(tp.axis()) == OnAxis::split;
    (is_split ? split[0] : whole).add_(counted_squares(p.grad(), layout));
  }
  if (tp.size() > 1) {
    Group group = tp.group();
    group.all_reduce(split).wait();
  }
  check<UsageError>(split[1].item<double>() > 0, kNoGradients);
  const double norm = std::sqrt(split[0].add(whole).item<double>());
  const double scale = max_norm / (norm + 1e-6);
  if (!(scale >= 1))
    for (const auto& [name, p] : parameters)
      if (p.grad().defined()) p.grad().mul_(scale);
  return norm;
}

void check_replicas(const torch::nn::Module& module, const TensorParallel& tp) {
  if (tp.size() == 1) return;
  at::NoGradGuard no_grad;
  const auto layouts = layouts_of(module);
  std::vector<std::string> what;
  std::vector<int64_t> digests;
  at::Device device = at::kCPU;
  for (const auto& [name, p] : named_parameters(module)) {
    if (layouts.at(name).on(tp.axis()) == OnAxis::split) continue;
    device = p.device();
    check<UsageError>(p.numel() == 0 || p.storage().data_ptr().get() != nullptr,
                      "check_replicas: the storage of parameter '{}' has been freed because a "
                      "FullySharded holds it: call it while a FullySharded::Gathered lives",
                      name);
    what.push_back("parameter '" + name + "'");
    digests.push_back(detail::digest_of(p));
    what.push_back("the gradient of '" + name + "'");
    digests.push_back(p.grad().defined() ? detail::digest_of(p.grad()) : 0);
  }
  if (digests.empty()) return;
  const auto count = static_cast<int64_t>(digests.size());
  const at::Tensor mine = at::tensor(digests, at::kLong).to(device);
  const at::Tensor gathered = at::empty({tp.size(), count}, mine.options());
  Group group = tp.group();
  group.all_gather_into_tensor(gathered, mine).wait();
  const at::Tensor all = gathered.cpu();
  for (int64_t i = 0; i < count; ++i)
    for (int r = 1; r < tp.size(); ++r)
      check<UsageError>(all[r][i].equal(all[0][i]),
                        "{} differs between ranks {} and 0 of axis '{}', and its layout says that "
                        "it is equal: let a LaysOutParameters say what it is, and initialise it "
                        "alike on all ranks",
                        what[static_cast<size_t>(i)], r, tp.axis());
}

}  // namespace trireme
