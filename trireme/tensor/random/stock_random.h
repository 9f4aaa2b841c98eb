// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// A module that draws from LibTorch's generator during training: the numbers it draws depend on
/// how samples are split over ranks, and thread ranks share that generator.
struct StockRandom {
  std::string path;     // "blocks.0.drop"; "" is the model itself
  std::string type;     // "torch::nn::Dropout"
  std::string instead;  // what to use in its place
};

/// The first such module below `root` in registration order: a dropout, RReLU, or a recurrent or
/// attention layer with dropout.
TRIREME_API std::optional<StockRandom> find_stock_random(const torch::nn::Module& root);

}  // namespace trireme
