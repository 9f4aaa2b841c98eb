// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/model_shape.h"

#include <map>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {
namespace {

class Builder {
 public:
  /// A child of the network; parameters that follow are its own.
  void module(const std::string& name, const std::string& type) {
    shape_.modules.push_back({name, type, 0});
  }
  void parameter(const std::string& name, std::vector<int64_t> shape) {
    shape_.parameters.push_back({name, std::move(shape), unit_});
    shape_.modules.back().parameters += shape_.parameters.back().numel();
  }
  void linear(const std::string& name, int64_t in, int64_t out, bool bias = true) {
    parameter(name + ".weight", {out, in});
    if (bias) parameter(name + ".bias", {out});
  }
  void norm(const std::string& name, int64_t width) {
    parameter(name + ".weight", {width});
    parameter(name + ".bias", {width});
  }
  void convolution(const std::string& name, int64_t in, int64_t out, int64_t kernel) {
    module(name, "Conv2d");
    parameter(name + ".weight", {out, in, kernel, kernel});
    parameter(name + ".bias", {out});
  }
  void dense(const std::string& name, int64_t in, int64_t out) {
    module(name, "Linear");
    linear(name, in, out);
  }
  void unit(int unit) { unit_ = unit; }
  ModelShape take() { return std::move(shape_); }

 private:
  ModelShape shape_;
  int unit_ = 0;
};

/// qkv and up have a rank's outputs, with their biases; proj and down have its inputs, and the
/// whole bias. What is on a rank whole is the same on all of them.
void gpt_block(Builder& b, const std::string& block, const ModelGeometry& g, const ModelPart& p) {
  const int64_t heads = split_heads(g.heads, g.heads, p.tp, p.tp_rank).queries.length;
  const int64_t attended = g.width * heads / g.heads, units = p.part_of(4 * g.width);
  b.norm(block + "ln1", g.width);
  b.norm(block + "ln2", g.width);
  b.linear(block + "attn.qkv", g.width, 3 * attended);
  b.linear(block + "attn.proj", attended, g.width);
  b.linear(block + "mlp.up", g.width, units);
  b.linear(block + "mlp.down", units, g.width);
}

ModelShape gpt(const ModelGeometry& g, const ModelPart& p) {
  const auto stages =
      p.stages.empty() ? std::vector<pipeline::StageBlocks>{{0, g.layers, true, true}} : p.stages;
  const bool first = stages.front().first, last = stages.back().last;
  const int64_t vocab = p.part_of(g.vocab);
  Builder b;
  if (first || (last && g.tied_head)) {  // the last stage computes logits with it
    b.module("wte", "Embedding");
    b.parameter("wte.weight", {vocab, g.width});
  }
  if (first) {
    b.module("wpe", "Embedding");
    b.parameter("wpe.weight", {g.context, g.width});
    b.module("drop", "Dropout");
  }
  b.module("blocks", "ModuleList");
  int unit = 0;
  for (const auto& stage : stages)
    for (int64_t i = stage.begin; i < stage.end; ++i) {
      b.unit(++unit);
      gpt_block(b, "blocks." + std::to_string(i) + ".", g, p);
    }
  b.unit(0);
  if (!last) return b.take();
  b.module("ln_f", "LayerNorm");
  b.norm("ln_f", g.width);
  if (!g.tied_head) {
    b.module("head", "Linear");
    b.linear("head", g.width, vocab, false);
  } else if (first && stages.size() > 1) {  // a V: the last stage has a copy of the embedding
    b.module("wte_of_head", "Embedding");
    b.parameter("wte_of_head.weight", {vocab, g.width});
  }
  return b.take();
}

/// Says who saves what of a rank's part. What is as large as the whole is the whole.
ModelShape with_savers(ModelShape part, const ModelGeometry& g, const ModelPart& p) {
  const bool first = p.stages.empty() || p.stages.front().first;
  std::map<std::string, int64_t> whole;
  for (const ParameterShape& of_all : gpt(g, {}).parameters) whole[of_all.name] = of_all.numel();
  for (ParameterShape& own : part.parameters) {
    const bool copy = own.name == "wte_of_head.weight" || (own.name == "wte.weight" && !first);
    own.savers = copy ? 0 : own.numel() == whole.at(own.name) ? p.tp : 1;
  }
  return part;
}

ModelShape mlp(const ModelGeometry& g) {
  Builder b;
  b.module("layers", "ModuleList");
  for (size_t i = 0; i + 1 < g.mlp_sizes.size(); ++i) {
    b.unit(static_cast<int>(i + 1));
    b.linear("layers." + std::to_string(i), g.mlp_sizes[i], g.mlp_sizes[i + 1]);
  }
  return b.take();
}

ModelShape net() {
  Builder b;
  b.convolution("conv1", 1, 20, 5);
  b.convolution("conv2", 20, 20, 5);
  b.dense("fc1", 2000, 50);
  b.dense("fc2", 50, 10);
  return b.take();
}

ModelShape convnet() {
  Builder b;
  b.convolution("conv1", 1, 32, 3);
  b.convolution("conv2", 32, 64, 3);
  b.module("dropout1", "Dropout");
  b.module("dropout2", "Dropout");
  b.dense("fc1", 9216, 128);
  b.dense("fc2", 128, 10);
  return b.take();
}

}  // namespace

int64_t ParameterShape::numel() const {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

int64_t ModelShape::numel() const {
  int64_t n = 0;
  for (const auto& p : parameters) n += p.numel();
  return n;
}

ModelGeometry::ModelGeometry(const ModelSection& model)
    : type(model.type),
      layers(model.layers),
      width(model.width),
      heads(model.heads),
      context(model.context),
      vocab(model.vocab),
      tied_head(model.tied_head),
      dropout(model.dropout),
      mlp_sizes{model.inputs} {
  mlp_sizes.insert(mlp_sizes.end(), model.hidden.begin(), model.hidden.end());
  mlp_sizes.push_back(model.outputs);
}

ModelGeometry geometry_of(const Config& c) { return ModelGeometry(c.section<ModelSection>()); }

ModelShape model_shape(const ModelGeometry& g) { return model_shape(g, {}); }

ModelShape model_shape(const ModelGeometry& g, const ModelPart& part) {
  if (g.type == "gpt") return with_savers(gpt(g, part), g, part);
  check<UsageError>(part.tp == 1 && part.stages.empty(),
                    "a model of type '{}' cannot be divided over ranks: only gpt can", g.type);
  if (g.type == "mlp") return mlp(g);
  if (g.type == "net") return net();
  if (g.type == "convnet") return convnet();
  fail<UsageError>("the planner knows no model of type '{}': gpt, mlp, net and convnet are",
                   g.type);
}

}  // namespace trireme
