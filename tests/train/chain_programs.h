// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "tests/train/programs.h"
#include "trireme/train/program/chain_program.h"

// Programs whose pieces follow each other, for tests of pipelines.
namespace trireme::testing {

constexpr int64_t kDeepWidth = 24;

struct StemImpl : torch::nn::Module {
  StemImpl() : in(register_module("in", torch::nn::Linear(784, kDeepWidth))) {}
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor h = torch::relu(in(x.flatten(1)));
    return {h, h * 0.5};
  }
  torch::nn::Linear in;
};
TORCH_MODULE(Stem);

/// Passes what the stem gave on beside the hidden state, and sees something of the micro-batch.
struct ResidualImpl : torch::nn::Module {
  ResidualImpl() : net(register_module("net", SmallNet(kDeepWidth, kDeepWidth))) {}
  std::vector<at::Tensor> forward(const at::Tensor& x, const at::Tensor& skip,
                                  const at::Tensor& mean) {
    return {x + drop(net(x + 0.1 * mean)), skip};
  }
  SmallNet net;
  trireme::Dropout drop = register_module("drop", trireme::Dropout(0.1));
};
TORCH_MODULE(Residual);

struct TopImpl : torch::nn::Module {
  TopImpl() : out(register_module("out", torch::nn::Linear(kDeepWidth, 10))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& skip) { return out(x + skip); }
  torch::nn::Linear out;
};
TORCH_MODULE(Top);

/// Eight pieces: two tensors go from one to the next, and each block looks at the input too.
struct DeepProgram : ChainProgram {
  static constexpr int kBlocks = 6;
  Pieces make(const Config&) override {
    Pieces all{piece("stem", [] { return Stem(); })};
    for (int i = 0; i < kBlocks; ++i)
      all.push_back(piece("blocks." + std::to_string(i), [] { return Residual(); }));
    all.push_back(piece("top", [] { return Top(); }));
    return all;
  }
  Sources data(const Config&) override {
    return {make_digits({256, 42, "train"}), make_digits({50, 42, "validation"}), "digits 256"};
  }
  Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                    const MicroBatch& b) override {
    Tensors all = inputs;
    if (path.starts_with("blocks.")) all.push_back(b.input.flatten(1).mean(1, true));
    return net.run_list(path, all);
  }
  LossTerms loss_of(const Tensors& outputs, const MicroBatch& b) override {
    return {{"loss", cross_entropy_sum(outputs.at(0), b.target)}};
  }
};

/// Two terms, of which the second has a weight of its own.
struct DeepTerms : DeepProgram {
  static at::Tensor even(const MicroBatch& b) { return b.target.remainder(2).eq(0); }
  TermWeights weights(const MicroBatch& b) override {
    return {{"all", static_cast<double>(b.weight)},
            {"even", even(b).sum().template item<double>()}};
  }
  LossTerms loss_of(const Tensors& outputs, const MicroBatch& b) override {
    namespace F = torch::nn::functional;
    const at::Tensor each = F::cross_entropy(outputs.at(0), b.target,
                                             F::CrossEntropyFuncOptions().reduction(torch::kNone));
    return {{"all", each.sum()}, {"even", (each * even(b)).sum()}};
  }
};

struct NormedImpl : torch::nn::Module {
  NormedImpl()
      : net(register_module("net", SmallNet(kDeepWidth, kDeepWidth))),
        norm(register_module("norm", torch::nn::BatchNorm1d(kDeepWidth))) {}
  at::Tensor forward(const at::Tensor& x) { return x + norm(net(x)); }
  SmallNet net;
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(Normed);

/// Every stage has buffers.
struct NormedProgram : DeepProgram {
  Pieces make(const Config&) override {
    Pieces all{piece("stem", [] { return SmallNet(784, kDeepWidth); })};
    for (int i = 0; i < 2; ++i)
      all.push_back(piece("blocks." + std::to_string(i), [] { return Normed(); }));
    all.push_back(piece("top", [] { return SmallNet(kDeepWidth, 10); }));
    return all;
  }
  Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                    const MicroBatch&) override {
    return net.run_list(path, inputs);
  }
};

}  // namespace trireme::testing
