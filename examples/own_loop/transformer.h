// SPDX-License-Identifier: Apache-2.0
// A transformer of torch::nn, which transformer.cc trains as it is and from_transformer.cc divides.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdio>

constexpr int64_t kVocab = 64, kWidth = 32, kHeads = 4, kLayers = 4, kTime = 16, kRows = 4;
constexpr int kSteps = 15;
constexpr int kMicroBatches = 8;  // of a step, over all replicas

// Rows that count up by 1, 2 or 3: the network has to see by how much.
inline torch::Tensor tokens_of(int64_t number) {
  auto g = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number));
  const auto first = torch::randint(0, kVocab, {kRows, 1}, g, torch::kLong);
  return (first + torch::randint(1, 4, {kRows, 1}, g, torch::kLong) * torch::arange(kTime + 1))
      .remainder(kVocab);
}

// The mask lets a token see earlier ones alone.
struct Whole : torch::nn::Module {
  Whole() {
    torch::manual_seed(42);  // in place of torch::load(): the same weights on every rank
    words = register_module("words", torch::nn::Embedding(kVocab, kWidth));
    places = register_module("places", torch::nn::Embedding(kTime, kWidth));
    layers = register_module("layers", torch::nn::ModuleList());
    auto options = torch::nn::TransformerEncoderLayerOptions(kWidth, kHeads).dropout(0);
    for (int64_t i = 0; i < kLayers; ++i)
      layers->push_back(torch::nn::TransformerEncoderLayer(options.dim_feedforward(4 * kWidth)));
    head = register_module("head", torch::nn::Linear(kWidth, kVocab));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    torch::Tensor x = (words(ids) + places->weight).transpose(0, 1);
    const auto mask = torch::full({kTime, kTime}, -INFINITY).triu(1);
    for (size_t i = 0; i < layers->size(); ++i)
      x = layers->at<torch::nn::TransformerEncoderLayerImpl>(i).forward(x, mask);
    return head(x.transpose(0, 1));
  }
  torch::nn::Embedding words{nullptr}, places{nullptr};
  torch::nn::ModuleList layers{nullptr};
  torch::nn::Linear head{nullptr};
};

inline void print(int step, double loss) { std::printf("step %d, loss %.5f\n", step, loss); }
