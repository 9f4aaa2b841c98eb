// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/divided_shards.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/optim/norm_parts.h"

namespace trireme {
namespace {

/// The squares of the elements [begin, begin + numel) of a parameter that are counted here.
double counted_squares(const at::Tensor& grad, int64_t begin, const ParameterLayout& layout) {
  const at::Tensor wide = grad.detach().reshape({-1}).to(at::kDouble);
  double sum = 0;
  int64_t at = 0;
  for (const Box& box : layout.boxes) {
    const int64_t first = std::max<int64_t>(at - begin, 0);
    const int64_t end = std::min(at + box.numel() - begin, wide.numel());
    if (box.counted && first < end) {
      const at::Tensor part = wide.narrow(0, first, end - first);
      sum += part.mul(part).sum().item<double>();
    }
    at += box.numel();
  }
  return sum;
}

// Alike on all ranks: none of them waits for one that was refused.
const ParameterLayouts& layouts_for(const ShardedParameters& sharded, const char* who) {
  check<UsageError>(!sharded.layouts().empty(),
                    "{}: nothing says how the parameters are divided: shard the module, not a list "
                    "of tensors or a TorchScript module",
                    who);
  return sharded.layouts();
}

}  // namespace

void add_shared_gradients(ShardedParameters& sharded, Group tp, const std::string& axis) {
  if (tp.size() == 1) return;
  at::NoGradGuard no_grad;
  const NamedTensors& shards = sharded.shards();
  const ParameterLayouts& layouts = layouts_for(sharded, "add_shared_gradients");
  // Ranks of `tp` may own different ranges of what they all hold, where parts of layers differ in
  // size. So each adds its own to all elements, and the sum goes over both groups.
  std::map<std::string, int64_t> places;
  int64_t total = 0;
  for (const auto& [name, layout] : layouts) {
    if (layout.on(axis) != OnAxis::sum) continue;
    places[name] = total;
    for (const Box& box : layout.boxes) total += box.numel();
  }
  if (total == 0) return;
  const bool wide = std::any_of(shards.begin(), shards.end(), [](const auto& item) {
    return item.second.scalar_type() == at::kDouble;
  });
  const auto options = shards.front().second.options().requires_grad(false);
  at::Tensor sums = at::zeros({total}, options.dtype(wide ? at::kDouble : at::kFloat));
  const auto each = [&](const auto& act) {
    for (const auto& [name, shard] : shards) {
      const auto place = places.find(name);
      if (place == places.end() || shard.numel() == 0 || !shard.grad().defined()) continue;
      act(sums.narrow(0, place->second + sharded.begin_of(name), shard.numel()),
          shard.grad().view({-1}));
    }
  };
  each([](at::Tensor place, const at::Tensor& grad) { place.add_(grad); });
  if (Group over = sharded.groups().shards; over.size() > 1) over.all_reduce(sums).wait();
  tp.all_reduce(sums).wait();
  each([](const at::Tensor& place, at::Tensor grad) { grad.copy_(place); });
}

double clip_grad_norm(ShardedParameters& sharded, Group tp, double max_norm,
                      const std::string& axis) {
  check<UsageError>(max_norm >= 0, "clip_grad_norm: the limit is {}, and must not be negative",
                    max_norm);
  at::NoGradGuard no_grad;
  // Over `tp`, parts of parameters are added; what is whole there is equal on all of its ranks.
  const NamedTensors& shards = sharded.shards();
  const ParameterLayouts& layouts = layouts_for(sharded, "clip_grad_norm");
  double sums[] = {0, 0};
  double& split = sums[0];
  const double& whole = sums[1];
  for (const auto& [name, shard] : shards) {
    if (shard.numel() == 0 || !shard.grad().defined()) continue;
    const ParameterLayout& layout = layouts.at(name);
    sums[layout.on(axis) == OnAxis::split ? 0 : 1] +=
        counted_squares(shard.grad(), sharded.begin_of(name), layout);
  }
  add_over(sharded.groups().shards)(sums, 2);
  add_over(std::move(tp))(&split, 1);
  const double norm = std::sqrt(split + whole);
  const double scale = max_norm / (norm + 1e-6);
  if (!(scale >= 1))
    for (const auto& [name, shard] : shards)
      if (shard.grad().defined()) shard.grad().mul_(scale);
  return norm;
}

}  // namespace trireme
