// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/begin_alike.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"
#include "trireme/comm/reachable.h"
#include "trireme/layers/tensor_parallel/embedding.h"
#include "trireme/layers/tensor_parallel/linear.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

// A tensor as all ranks must describe it; what this rank holds of it: 1 or 0 (counted), offsets and
// lengths of each box.
using LayerText = std::pair<std::string, std::vector<int64_t>>;

struct Begun {
  std::string name;
  at::Tensor tensor;
  ParameterLayout layout;
  bool split = false, buffer = false;
};

std::vector<Begun> begun_in(const torch::nn::Module& module, const std::string& axis) {
  std::vector<Begun> all;
  const auto layouts = layouts_of(module);
  for (const auto& [name, p] : named_parameters(module)) {
    const ParameterLayout& layout = layouts.at(name);
    all.push_back({name, p, layout, layout.on(axis) == OnAxis::split});
  }
  for (const auto& item : module.named_buffers())
    all.push_back({item.key(), item.value(), ParameterLayout::whole(item.value().sizes().vec()),
                   false, true});
  return all;
}

LayerText text_of(const Begun& h, const std::string& axis) {
  std::vector<int64_t> boxes;
  for (const Box& box : h.layout.boxes) {
    boxes.push_back(box.counted ? 1 : 0);
    boxes.insert(boxes.end(), box.offsets.begin(), box.offsets.end());
    boxes.insert(boxes.end(), box.lengths.begin(), box.lengths.end());
  }
  const char* kind = h.split                            ? ", in parts"
                     : h.layout.on(axis) == OnAxis::sum ? ", whole, its gradients added"
                                                        : ", whole";
  return {fmt::format("{} [{}] of {}{}{}", h.name, fmt::join(h.layout.shape, " × "),
                      c10::toString(h.tensor.scalar_type()), kind,
                      h.buffer || h.tensor.requires_grad() ? "" : ", not trained"),
          std::move(boxes)};
}

std::vector<Box> boxes_of(const std::vector<int64_t>& numbers, size_t dims) {
  std::vector<Box> boxes;
  for (size_t at = 0; at + 2 * dims < numbers.size(); at += 1 + 2 * dims) {
    const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    const auto middle = first + static_cast<std::ptrdiff_t>(dims);
    boxes.push_back(
        {{first, middle}, {middle, middle + static_cast<std::ptrdiff_t>(dims)}, numbers[at] == 1});
  }
  return boxes;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::string text_at(const std::vector<LayerText>& of_rank, size_t i) {
  return i < of_rank.size() ? of_rank[i].first : "none";
}

void check_same_layers(const std::vector<std::vector<LayerText>>& all, const std::string& what,
                       const Group& tp) {
  const auto world = tp.world_ranks();
  for (size_t r = 1; r < all.size(); ++r)
    for (size_t i = 0; i < std::max(all[0].size(), all[r].size()); ++i)
      check<UsageError>(text_at(all[0], i) == text_at(all[r], i),
                        "{}: ranks {} and {}, which hold parts of the same layers (parallelism.tp),"
                        " made different ones: {} and {}. Make the same layers on all of them",
                        what, world[0], world[r], text_at(all[0], i), text_at(all[r], i));
}

bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.offsets.size(); ++d)
    if (a.offsets[d] + a.lengths[d] <= b.offsets[d] || b.offsets[d] + b.lengths[d] <= a.offsets[d])
      return false;
  return a.numel() > 0 && b.numel() > 0;
}

bool same_place(const Box& a, const Box& b) {
  return a.offsets == b.offsets && a.lengths == b.lengths;
}

/// Of each rank, the boxes of one parameter.
using BoxesOfRanks = std::vector<std::vector<Box>>;

BoxesOfRanks boxes_of_ranks(const std::vector<std::vector<LayerText>>& all, size_t i, size_t dims) {
  BoxesOfRanks boxes;
  for (const auto& of_rank : all) boxes.push_back(boxes_of(of_rank[i].second, dims));
  return boxes;
}

void check_whole(const Begun& h, const BoxesOfRanks& all, const std::string& what) {
  std::vector<Box> counted;
  for (const auto& of_rank : all)
    for (const Box& box : of_rank)
      if (box.counted) counted.push_back(box);
  int64_t sum = 0;
  bool twice = false;
  for (size_t i = 0; i < counted.size(); ++i) {
    sum += counted[i].numel();
    for (size_t j = 0; j < i; ++j) twice = twice || overlap(counted[i], counted[j]);
  }
  const int64_t due = elements_of(h.layout.shape);
  check<UsageError>(sum == due && !twice,
                    "{}: the ranks' parts of parameter '{}' are not the whole of {} elements: they "
                    "have {}{}. Make its layer with the TensorParallel that make_divided() or "
                    "tensor_parallel_of() gives, on all ranks",
                    what, h.name, due, sum, twice ? ", some of them twice" : "");
}

// Weights of our own layers: each element of those is drawn, so that equal parts are no accident.
std::set<const at::TensorImpl*> drawn_weights(torch::nn::Module& module) {
  std::set<const at::TensorImpl*> weights;
  const auto add = [&](torch::nn::Module& m) {
    if (auto* column = dynamic_cast<ColumnParallelLinear*>(&m))
      weights.insert(column->weight.unsafeGetTensorImpl());
    if (auto* row = dynamic_cast<RowParallelLinear*>(&m))
      weights.insert(row->weight.unsafeGetTensorImpl());
    if (auto* embedding = dynamic_cast<VocabParallelEmbedding*>(&m))
      weights.insert(embedding->weight.unsafeGetTensorImpl());
  };
  add(module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) add(*item.value());
  return weights;
}

void check_drawn_apart(torch::nn::Module& module, const std::vector<Begun>& begun,
                       const std::vector<std::vector<LayerText>>& all, const std::string& what,
                       const Group& tp) {
  const auto drawn = drawn_weights(module);
  std::vector<int64_t> digests;  // of as many elements as each rank has; 0: all alike, or none
  for (size_t i = 0; i < begun.size(); ++i) {
    digests.push_back(0);
    if (!drawn.contains(begun[i].tensor.unsafeGetTensorImpl())) continue;
    int64_t common = begun[i].tensor.numel();
    for (const auto& of_rank : boxes_of_ranks(all, i, begun[i].layout.shape.size())) {
      int64_t here = 0;
      for (const Box& box : of_rank) here += box.numel();
      common = std::min(common, here);
    }
    if (common < 2) continue;
    const at::Tensor first = begun[i].tensor.detach().reshape({-1}).narrow(0, 0, common);
    if (!first.isnan().any().item<bool>() && !first.eq(first[0]).all().item<bool>())
      digests.back() = detail::digest_of(first);
  }
  const auto of_ranks = all_gather_object(tp, digests);
  const auto world = tp.world_ranks();
  for (size_t i = 0; i < begun.size(); ++i)
    for (size_t r = 1; r < of_ranks.size(); ++r)
      check<UsageError>(of_ranks[0][i] == 0 || of_ranks[r][i] != of_ranks[0][i],
                        "{}: ranks {} and {} hold different parts of parameter '{}', and drew the "
                        "same numbers for both. Leave it unset, or draw each element by its place "
                        "in the whole: normal_(p, key, mean, std, layout)",
                        what, world[0], world[r], begun[i].name);
}

// Written in place without touching the version counter, as broadcast_tensors() does.
void take_from(Group& tp, int root, const at::Tensor& t) {
  const at::Tensor here = t.variable_data();
  if (tp.supports(Collective::broadcast, t.scalar_type(), t.device().type()))
    return tp.broadcast(here, root).wait();
  const at::Device reachable = detail::reachable_device(tp, Collective::broadcast, t.scalar_type());
  const at::Tensor there = here.to(reachable);
  tp.broadcast(there, root).wait();
  here.copy_(there);
}

// What several ranks hold of one place (a key/value head that they share) is what the rank has that
// counts it.
void take_shared(Group& tp, const Begun& h, const BoxesOfRanks& all) {
  const auto mine = static_cast<size_t>(tp.rank());
  for (size_t r = 0; r < all.size(); ++r)
    for (const Box& from : all[r]) {
      const auto twin = [&](const Box& box) { return !box.counted && same_place(box, from); };
      const bool shared = from.counted && std::any_of(all.begin(), all.end(), [&](const auto& of) {
                            return std::any_of(of.begin(), of.end(), twin);
                          });
      if (!shared) continue;
      // All ranks take part.
      at::Tensor value = at::empty(from.lengths, h.tensor.options().requires_grad(false));
      at::Tensor own;
      int64_t row = 0;
      for (const Box& box : all[mine]) {
        if (same_place(box, from)) own = h.tensor.variable_data().narrow(0, row, box.lengths[0]);
        row += box.lengths[0];
      }
      if (own.defined()) value.copy_(own);
      take_from(tp, static_cast<int>(r), value);
      if (own.defined()) own.copy_(value);
    }
}

// Of LibTorch's modules that drop elements of what passes through them.
double drop_probability(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  if (const auto* m = module.as<nn::Dropout>()) return m->options.p();
  if (const auto* m = module.as<nn::Dropout2d>()) return m->options.p();
  if (const auto* m = module.as<nn::Dropout3d>()) return m->options.p();
  if (const auto* m = module.as<nn::AlphaDropout>()) return m->options.p();
  if (const auto* m = module.as<nn::FeatureAlphaDropout>()) return m->options.p();
  if (const auto* m = module.as<nn::MultiheadAttention>()) return m->options.dropout();
  if (const auto* m = module.as<nn::RNN>()) return m->options.dropout();
  if (const auto* m = module.as<nn::LSTM>()) return m->options.dropout();
  if (const auto* m = module.as<nn::GRU>()) return m->options.dropout();
  return 0;
}

void check_no_stock_dropout(const torch::nn::Module& module, const std::string& what) {
  const auto refuse = [&](const torch::nn::Module& m, const std::string& where) {
    check<UsageError>(drop_probability(m) == 0,
                      "{}: {} is torch's dropout, and each of the ranks that hold parts of the "
                      "same layers (parallelism.tp) would drop other elements: use "
                      "trireme::Dropout, which draws by key",
                      what, where);
  };
  refuse(module, "it");  // a module on the stack has no shared_ptr, which named_modules() wants
  for (const auto& child : module.named_children())
    for (const auto& item : child.value()->named_modules(child.key()))
      refuse(*item.value(), fmt::format("'{}' ({})", item.key(), item.value()->name()));
}

std::vector<int64_t> digests_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> digests;
  for (const at::Tensor& t : tensors)
    digests.push_back(t.defined() ? detail::digest_of(t.detach().contiguous()) : 0);
  return digests;
}

void check_same_buffers(const std::vector<Begun>& begun, const std::string& what, const Group& tp) {
  std::vector<at::Tensor> buffers;
  std::vector<std::string> names;
  for (const Begun& h : begun)
    if (h.buffer) {
      buffers.push_back(h.tensor);
      names.push_back(h.name);
    }
  const auto all = all_gather_object(tp, digests_of(buffers));
  const auto world = tp.world_ranks();
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t r = 1; r < all.size(); ++r)
      check<UsageError>(all[r][i] == all[0][i],
                        "{}: ranks {} and {}, which hold parts of the same layers "
                        "(parallelism.tp), begin with different values of buffer '{}': buffers are "
                        "whole and equal on all of them, also in checkpoints",
                        what, world[0], world[r], names[i]);
}

}  // namespace

void begin_alike(torch::nn::Module& module, const std::string& what, Group tp) {
  if (tp.size() == 1) return check_undivided(module, what);
  at::NoGradGuard no_grad;
  const std::string axis = "tp";
  check_no_stock_dropout(module, what);
  const std::vector<Begun> begun = begun_in(module, axis);
  std::vector<LayerText> mine;
  for (const Begun& h : begun) mine.push_back(text_of(h, axis));
  const auto all = all_gather_object(tp, mine);
  check_same_layers(all, what, tp);
  for (size_t i = 0; i < begun.size(); ++i)
    if (begun[i].split)
      check_whole(begun[i], boxes_of_ranks(all, i, begun[i].layout.shape.size()), what);
  check_drawn_apart(module, begun, all, what, tp);
  check_same_buffers(begun, what, tp);
  for (size_t i = 0; i < begun.size(); ++i) {
    const Begun& h = begun[i];
    if (h.split)
      take_shared(tp, h, boxes_of_ranks(all, i, h.layout.shape.size()));
    else if (!h.buffer)
      take_from(tp, 0, h.tensor);
  }
}

void check_undivided(const torch::nn::Module& module, const std::string& what) {
  const auto layouts = layouts_of(module);
  for (const auto& [name, p] : named_parameters(module))
    check<UsageError>(p.numel() == elements_of(layouts.at(name).shape),
                      "{}: this rank holds {} of the {} elements of parameter '{}', and "
                      "parallelism.tp is 1: every rank would be taken to hold the same. Set "
                      "parallelism.tp to the number of ranks that divide a layer",
                      what, p.numel(), elements_of(layouts.at(name).shape), name);
}

void check_same_inputs(const std::vector<at::Tensor>& inputs, const std::string& what,
                       const Group& tp) {
  const auto all = all_gather_object(tp, digests_of(inputs));
  const auto world = tp.world_ranks();
  for (size_t r = 1; r < all.size(); ++r)
    check<UsageError>(all[r] == all[0],
                      "{}: ranks {} and {}, which hold parts of the same layers (parallelism.tp), "
                      "were given different inputs: let them read the same samples, by their rank "
                      "in data_parallel()",
                      what, world[0], world[r]);
}

}  // namespace trireme
