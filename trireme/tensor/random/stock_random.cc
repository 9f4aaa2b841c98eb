// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/stock_random.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/rnn.h>

namespace trireme {
namespace {

constexpr const char* kOurs = "trireme::Dropout, which is keyed by sample";
constexpr const char* kBetween = "the layers one by one with trireme::Dropout between them";

// "" for a module that draws nothing.
const char* drawing_type(const torch::nn::Module& m, const char** instead) {
  namespace nn = torch::nn;
  *instead = kOurs;
  if (dynamic_cast<const nn::DropoutImpl*>(&m)) return "torch::nn::Dropout";
  if (dynamic_cast<const nn::Dropout2dImpl*>(&m)) return "torch::nn::Dropout2d";
  if (dynamic_cast<const nn::Dropout3dImpl*>(&m)) return "torch::nn::Dropout3d";
  if (dynamic_cast<const nn::AlphaDropoutImpl*>(&m)) return "torch::nn::AlphaDropout";
  if (dynamic_cast<const nn::FeatureAlphaDropoutImpl*>(&m)) return "torch::nn::FeatureAlphaDropout";
  *instead = "torch::nn::LeakyReLU";
  if (dynamic_cast<const nn::RReLUImpl*>(&m)) return "torch::nn::RReLU";
  *instead = kBetween;
  auto drops = [](const auto* layer) { return layer && layer->options_base.dropout() > 0; };
  if (drops(dynamic_cast<const nn::LSTMImpl*>(&m))) return "torch::nn::LSTM with dropout";
  if (drops(dynamic_cast<const nn::GRUImpl*>(&m))) return "torch::nn::GRU with dropout";
  if (drops(dynamic_cast<const nn::RNNImpl*>(&m))) return "torch::nn::RNN with dropout";
  *instead = "it without dropout, and trireme::Dropout behind it";
  const auto* attention = dynamic_cast<const nn::MultiheadAttentionImpl*>(&m);
  if (attention && attention->options.dropout() > 0)
    return "torch::nn::MultiheadAttention with dropout";
  return "";
}

}  // namespace

std::optional<StockRandom> find_stock_random(const torch::nn::Module& root) {
  const char* instead = "";
  if (const std::string type = drawing_type(root, &instead); !type.empty())
    return StockRandom{"", type, instead};
  for (const auto& item : root.named_modules("", /*include_self=*/false))
    if (const std::string type = drawing_type(*item.value(), &instead); !type.empty())
      return StockRandom{item.key(), type, instead};
  return std::nullopt;
}

}  // namespace trireme
