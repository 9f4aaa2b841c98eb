// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/train/call_forward.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// A part of a program's model: any module. The run handles pieces separately: with ZeRO stage 3
/// each is a unit that is whole only while it computes, and training.recompute_every counts them. A
/// tensor must not be a parameter of two pieces.
struct Piece {
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  struct Made {
    std::shared_ptr<torch::nn::Module> module;
    Forward forward;
  };
  std::string path;  // "generator", "blocks.3": the prefix of its parameters' names
  /// Makes the module. Called once on every rank, in the order of the list. At stage 3 a piece is
  /// sharded before the next one is made. Not called on ranks of a pipeline that do not have it.
  std::function<Made()> make;
  /// The time of its forward and backward in any unit, by which a pipeline divides pieces into
  /// stages (program/chain_program.h).
  double cost = 1;
};

/// Makes a Piece. `make` returns a holder (`Net net; return net;`) or a shared_ptr to a module
/// whose forward takes up to 8 tensors or a vector of them, and returns a tensor, or a vector or
/// tuple of them.
template <class Make>
Piece piece(std::string path, Make make, double cost = 1) {
  return {std::move(path),
          [make = std::move(make)]() -> Piece::Made {
            auto module = make();
            auto forward = [module](const std::vector<at::Tensor>& inputs) mutable {
              return detail::call_forward(module, inputs);
            };
            if constexpr (requires { module.ptr(); })
              return {module.ptr(), std::move(forward)};
            else
              return {module, std::move(forward)};
          },
          cost};
}

/// Makes a piece of a TorchScript module from a file that torch.jit.save wrote. Its parameters are
/// trained, and saved under their own names. Throws UsageError if the file cannot be read.
TRIREME_API Piece script_piece(std::string path, std::string file, double cost = 1);

}  // namespace trireme
