// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// A module that draws from LibTorch's generator while it trains: what it draws depends on how
/// samples are split over ranks, and thread ranks share that generator.
struct StockRandom {
  std::string path;     // "blocks.0.drop"; "" is the model itself
  std::string type;     // "torch::nn::Dropout"
  std::string instead;  // what to write in its place
};

/// The first one below `root`, in the order of registration: dropouts, RReLU, and recurrent layers
/// and attention with a dropout.
TRIREME_API std::optional<StockRandom> find_stock_random(const torch::nn::Module& root);

}  // namespace trireme
