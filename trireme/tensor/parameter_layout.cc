// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/parameter_layout.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <unordered_map>

#include "trireme/base/check.h"

namespace trireme {
namespace {

bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.offsets.size(); ++d)
    if (a.offsets[d] + a.lengths[d] <= b.offsets[d] || b.offsets[d] + b.lengths[d] <= a.offsets[d])
      return false;
  return true;
}

// The modules by their paths, the root under "". A root on the stack has no shared_ptr of itself.
using Modules = std::unordered_map<std::string, const torch::nn::Module*>;
Modules modules_of(const torch::nn::Module& root) {
  Modules found{{"", &root}};
  for (const auto& item : root.named_modules("", /*include_self=*/false))
    found.emplace(item.key(), item.value().get());
  return found;
}

std::optional<ParameterLayout> declared(const Modules& modules, const std::string& name,
                                        const at::Tensor& p) {
  for (size_t end = name.rfind('.');; end = name.rfind('.', end - 1)) {
    const bool root = end == name.npos;
    const auto module = modules.find(root ? "" : name.substr(0, end));
    if (module != modules.end())
      if (const auto* knows = dynamic_cast<const LaysOutParameters*>(module->second))
        if (auto layout = knows->layout_of(root ? name : name.substr(end + 1), p)) return layout;
    if (root || end == 0) return std::nullopt;
  }
}

}  // namespace

LaysOutParameters::~LaysOutParameters() = default;

ParameterLayout ParameterLayout::whole(std::vector<int64_t> shape,
                                       std::map<std::string, OnAxis> axes) {
  return {shape, {Box::whole(shape)}, std::move(axes)};
}

OnAxis ParameterLayout::on(const std::string& axis) const {
  const auto found = axes.find(axis);
  return found == axes.end() ? OnAxis::same : found->second;
}

std::vector<int64_t> ParameterLayout::local_shape() const {
  if (boxes.empty()) return {0};
  auto sizes = boxes[0].lengths;
  for (size_t i = 1; i < boxes.size(); ++i) sizes[0] += boxes[i].lengths[0];
  return sizes;
}

bool ParameterLayout::is_whole() const { return boxes.size() == 1 && boxes[0].lengths == shape; }

std::string fault_of(const ParameterLayout& layout) {
  if (layout.boxes.empty()) return "it has no box";
  for (const Box& box : layout.boxes) {
    const auto fault = fault_of(Slice{"", layout.shape, box.offsets, box.lengths});
    if (!fault.empty()) return fault;
    for (size_t d = 1; d < box.lengths.size(); ++d)
      if (box.lengths[d] != layout.boxes[0].lengths[d])
        return fmt::format("boxes of {} and {} do not follow one another in dim 0",
                           fmt::join(layout.boxes[0].lengths, " × "),
                           fmt::join(box.lengths, " × "));
  }
  if (layout.shape.empty() && layout.boxes.size() > 1) return "a scalar has several boxes";
  for (size_t i = 0; i < layout.boxes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (overlap(layout.boxes[i], layout.boxes[j]))
        return fmt::format("boxes {} and {} overlap", j, i);
  return "";
}

std::vector<Slice> slices_of(const std::string& name, const ParameterLayout& layout) {
  std::vector<Slice> slices;
  for (const Box& box : layout.boxes)
    slices.push_back({name, layout.shape, box.offsets, box.lengths});
  return slices;
}

at::Tensor part_of(const at::Tensor& whole, const ParameterLayout& layout) {
  check<UsageError>(whole.sizes() == layout.shape,
                    "part_of: the whole tensor is {} and its layout is of {}",
                    fmt::join(whole.sizes().vec(), " × "), fmt::join(layout.shape, " × "));
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const Box& box : layout.boxes) {
    at::Tensor part = whole.detach();
    for (size_t d = 0; d < box.offsets.size(); ++d)
      part = part.narrow(static_cast<int64_t>(d), box.offsets[d], box.lengths[d]);
    parts.push_back(part);
  }
  return parts.size() == 1 ? parts[0].clone(at::MemoryFormat::Contiguous) : at::cat(parts, 0);
}

const std::string& whole_name(const ParameterLayouts& layouts, const std::string& name) {
  const auto found = layouts.find(name);
  return found != layouts.end() && !found->second.copy_of.empty() ? found->second.copy_of : name;
}

TiedNames with_copies(TiedNames tied, const ParameterLayouts& layouts) {
  for (const auto& [name, layout] : layouts)
    if (!layout.copy_of.empty()) tied.push_back({layout.copy_of, name});
  return tied;
}

ParameterLayouts layouts_of(const torch::nn::Module& module) {
  const auto modules = modules_of(module);
  const auto parameters = module.named_parameters();
  // A tied tensor is laid out by whichever of its names leads to a module that knows.
  struct Known {
    std::string name;
    ParameterLayout layout;
  };
  std::unordered_map<const at::TensorImpl*, Known> known;
  for (const auto& item : parameters) {
    auto layout = declared(modules, item.key(), item.value());
    if (!layout) continue;
    const auto fault = fault_of(*layout);
    check<UsageError>(fault.empty(), "the layout of parameter '{}' is wrong: {}", item.key(),
                      fault);
    check<UsageError>(item.value().sizes() == layout->local_shape(),
                      "parameter '{}' is {}, and its layout says {}: divide it again, or correct "
                      "the module's layout_of()",
                      item.key(), fmt::join(item.value().sizes().vec(), " × "),
                      fmt::join(layout->local_shape(), " × "));
    const auto [place, fresh] =
        known.emplace(item.value().unsafeGetTensorImpl(), Known{item.key(), *layout});
    check<UsageError>(fresh || place->second.layout == *layout,
                      "'{}' and '{}' are one tensor with two different layouts", place->second.name,
                      item.key());
  }
  ParameterLayouts layouts;
  for (const auto& item : parameters) {
    const auto found = known.find(item.value().unsafeGetTensorImpl());
    layouts.emplace(item.key(), found != known.end()
                                    ? found->second.layout
                                    : ParameterLayout::whole(item.value().sizes().vec()));
  }
  return layouts;
}

}  // namespace trireme
