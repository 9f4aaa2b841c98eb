// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// How parameters are born: each from a stream of its own, keyed by (seed, its dotted name). A rank
// that holds a part (tensor/parameter_layout.h) gets that part's bits of the whole.
namespace trireme {

// `path` is put before the names of the module's parameters: a part of a network gets what the
// network would give it.

/// PyTorch's default for Linear and Conv2d: uniform in ±1/√fan_in, weights and biases. For modules
/// made of those.
TRIREME_API void init_uniform_fan_in(torch::nn::Module& module, uint64_t seed,
                                     const std::string& path = "");

/// GPT-2's: normal with deviation 0.02, the projections back into the residual stream ("proj",
/// "down") smaller by √(2 · layers); biases 0, norms ("ln…") 1.
TRIREME_API void init_gpt(torch::nn::Module& module, uint64_t seed, int64_t layers,
                          const std::string& path = "");

/// Gives the parameters of tensor-parallel layers (layers/tensor_parallel) that nobody has set yet
/// (they are born as NaN) what PyTorch's own layers begin with: linear layers as
/// init_uniform_fan_in(), embeddings and positions a normal distribution with deviation 1. A layer
/// of one rank gets the same values as its parts on many. Everything else stays as it is.
TRIREME_API void init_unset(torch::nn::Module& module, uint64_t seed, const std::string& path = "");

}  // namespace trireme
