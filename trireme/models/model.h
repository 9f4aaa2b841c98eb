// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// What the trainer needs of a network.
struct TRIREME_API Model : torch::nn::Module {
  using torch::nn::Module::Module;
  ~Model() override;
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  /// The *sum* of the losses over the micro-batch, a float32 scalar: the mean is taken once, by the
  /// global weight.
  virtual at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) = 0;

  /// Blocks, all of one kind, whose inner values can be dropped after forward and computed again in
  /// backward (tensor/recompute.h). 0: the model has none.
  virtual int64_t blocks() const { return 0; }
  /// For each block, whether it is. The same bits either way. UsageError for another number.
  virtual void set_recompute(std::vector<bool> blocks);
};

struct GptOptions {
  int64_t layers = 6, width = 384, heads = 6, context = 256;
  int64_t vocab = 256;  // bytes
  double dropout = 0.1;
  bool tied_head = false;  // the head is the transposed token embedding
  /// k: the inner values of every k-th block are dropped after its forward and computed again in
  /// backward (tensor/recompute.h). 0: of none. The same bits either way.
  int64_t recompute_every = 0;
};

struct ModelOptions {
  std::string type = "gpt";                      // mlp, net, convnet, gpt
  std::vector<int64_t> mlp_sizes{784, 256, 10};  // input, hidden …, classes
  GptOptions gpt;
};

/// A network whose parameters are a pure function of (seed, parameter name, element), whatever else
/// has been drawn. Throws UsageError for an unknown type or sizes that do not fit.
TRIREME_API std::shared_ptr<Model> make_model(const ModelOptions& options, uint64_t seed);

}  // namespace trireme
