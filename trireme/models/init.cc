// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/init.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <string>
#include <string_view>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/philox.h"
#include "trireme/layers/tensor_parallel/embedding.h"
#include "trireme/layers/tensor_parallel/linear.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/random/random_boxes.h"

namespace trireme {
namespace {

uint64_t key_of(uint64_t seed, const std::string& name) {
  return stable_hash({seed, stable_hash(name)});
}

// "blocks.0.ln1.weight" → "ln1"
std::string_view module_of(std::string_view name) {
  const auto dot = name.rfind('.');
  if (dot == name.npos) return {};
  name = name.substr(0, dot);
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

bool is_unset(const at::Tensor& p) { return p.numel() > 0 && p.isnan().all().item<bool>(); }

// The layer's own parameters; `path` is the layer's with a dot.
template <class Layer, class Fill>
void fill_unset(Layer& layer, const std::string& path, uint64_t seed, Fill fill) {
  for (const auto& item : layer.named_parameters(/*recurse=*/false))
    if (is_unset(item.value()))
      fill(item.value(), key_of(seed, path + item.key()),
           layer.layout_of(item.key(), item.value()).value());
}

template <class Layer>
void fill_linear(Layer& layer, int64_t inputs, const std::string& path, uint64_t seed) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  fill_unset(layer, path, seed, [&](at::Tensor p, uint64_t key, const ParameterLayout& layout) {
    uniform_(std::move(p), key, -bound, bound, layout);
  });
}

void init_layer(torch::nn::Module& layer, uint64_t seed, const std::string& path) {
  mark_alive();  // all of them may take minutes
  const auto normal = [](at::Tensor p, uint64_t key, const ParameterLayout& layout) {
    normal_(std::move(p), key, 0, 1, layout);
  };
  if (auto* column = dynamic_cast<ColumnParallelLinear*>(&layer))
    fill_linear(*column, column->weight.size(1), path, seed);
  else if (auto* row = dynamic_cast<RowParallelLinear*>(&layer))
    fill_linear(*row, row->layout_of("weight", row->weight)->shape.at(1), path, seed);
  else if (auto* embedding = dynamic_cast<VocabParallelEmbedding*>(&layer))
    fill_unset(*embedding, path, seed, normal);
  else if (auto* positions = dynamic_cast<ParallelPositions*>(&layer))
    fill_unset(*positions, path, seed, normal);
}

}  // namespace

void init_uniform_fan_in(torch::nn::Module& module, uint64_t seed, const std::string& path) {
  at::NoGradGuard no_grad;
  const auto parameters = module.named_parameters();
  const auto layouts = layouts_of(module);
  for (const auto& item : parameters) {
    const auto& name = item.key();
    // A bias has the fan-in of the weight beside it.
    const auto weight = name.ends_with("bias") ? name.substr(0, name.size() - 4) + "weight" : name;
    const auto* w = parameters.find(weight);
    check<UsageError>(w && w->dim() >= 2 && w->numel() > 0,
                      "init: parameter '{}' is not of a Linear or Conv2d", name);
    // Of the whole weight, of which this rank may hold some of the inputs.
    int64_t fan_in = 1;
    const auto& shape = layouts.at(weight).shape;
    for (size_t d = 1; d < shape.size(); ++d) fan_in *= shape[d];
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    const uint64_t key = key_of(seed, path + name);
    if (const auto& layout = layouts.at(name); layout.is_whole())
      uniform_(item.value(), key, -bound, bound);
    else
      uniform_(item.value(), key, -bound, bound, layout);
  }
}

void init_gpt(torch::nn::Module& part, uint64_t seed, int64_t layers, const std::string& path) {
  at::NoGradGuard no_grad;
  const auto layouts = layouts_of(part);
  for (const auto& item : part.named_parameters()) {
    const std::string name = path + item.key();
    auto p = item.value();
    const auto module = module_of(name);
    if (name.ends_with("bias")) {
      p.zero_();
    } else if (module.starts_with("ln")) {
      p.fill_(1);
    } else {
      const bool residual = module == "proj" || module == "down";
      const double scale = residual ? 1 / std::sqrt(2.0 * static_cast<double>(layers)) : 1;
      const auto& layout = layouts.at(item.key());
      if (layout.is_whole())
        normal_(p, key_of(seed, name), 0, 0.02 * scale);
      else
        normal_(p, key_of(seed, name), 0, 0.02 * scale, layout);
    }
  }
}

void init_unset(torch::nn::Module& module, uint64_t seed, const std::string& path) {
  at::NoGradGuard no_grad;
  init_layer(module, seed, path);
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    init_layer(*item.value(), seed, path + item.key() + ".");
}

}  // namespace trireme
