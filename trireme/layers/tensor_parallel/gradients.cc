// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"
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

// What a rank holds that others should hold alike, by what it is.
struct Alike {
  int64_t digest = 0;
  bool whole = true;  // every rank has it; else those that have the same part of a whole
  bool buffer = false;
  TRIREME_FIELDS(digest, whole, buffer)
};
using Held = std::pair<std::string, Alike>;

std::vector<Held> held_alike(const torch::nn::Module& module, const TensorParallel& tp) {
  const auto layouts = layouts_of(module);
  std::vector<Held> held;
  const auto add = [&](const std::string& where, const at::Tensor& p, const at::Tensor& grad,
                       bool whole) {
    held.push_back({fmt::format("{}parameter {}", whole ? "" : "the part of ", where),
                    {detail::digest_of(p), whole, false}});
    held.push_back({fmt::format("the gradient of {}", where),
                    {grad.defined() ? detail::digest_of(grad) : 0, whole, false}});
  };
  for (const auto& [name, p] : named_parameters(module)) {
    check<UsageError>(p.numel() == 0 || p.storage().data_ptr().get() != nullptr,
                      "check_replicas: the storage of parameter '{}' has been freed because a "
                      "FullySharded holds it: call it while a FullySharded::Gathered lives",
                      name);
    const ParameterLayout& layout = layouts.at(name);
    if (layout.on(tp.axis()) != OnAxis::split) {
      add("'" + name + "'", p, p.grad(), true);
      continue;
    }
    int64_t row = 0;
    for (const Box& box : layout.boxes) {
      const auto part = [&, row](const at::Tensor& t) {
        if (!t.defined() || layout.boxes.size() == 1) return t;
        return t.narrow(0, row, box.lengths[0]);
      };
      add(fmt::format("'{}' of [{}] from [{}] on", name, fmt::join(box.lengths, ", "),
                      fmt::join(box.offsets, ", ")),
          part(p), part(p.grad()), false);
      if (!box.lengths.empty()) row += box.lengths[0];
    }
  }
  for (const auto& [name, b] : named_buffers(module))
    held.push_back({"buffer '" + name + "'", {detail::digest_of(b), true, true}});
  return held;
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
  const auto by_rank = all_gather_object(tp.group(), held_alike(module, tp));
  std::vector<std::map<std::string, Alike>> of_rank;
  for (const auto& list : by_rank) of_rank.emplace_back(list.begin(), list.end());
  for (size_t r = 1; r < by_rank.size(); ++r)
    for (const Held& theirs : by_rank[r])
      for (size_t s = 0; s < r; ++s) {
        const auto mine = of_rank[s].find(theirs.first);
        if (mine == of_rank[s].end()) {
          check<UsageError>(!theirs.second.whole,
                            "{} is on rank {} of axis '{}' and not on rank {}: make the same "
                            "modules on all ranks",
                            theirs.first, r, tp.axis(), s);
          continue;
        }
        check<UsageError>(
            mine->second.digest == theirs.second.digest,
            "{} differs between ranks {} and {} of axis '{}', and {}", theirs.first, r, s,
            tp.axis(),
            theirs.second.buffer
                ? "all of them should have computed it from the same: what follows a part of the "
                  "positions, as a BatchNorm's inside of sequence_parallel, is no buffer of theirs"
                : "its layout says that it is equal: let a LaysOutParameters say what it is, and "
                  "initialise it alike on all ranks");
        break;
      }
}

}  // namespace trireme
