// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "trireme/base/export.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// Runs the pieces of a program as the configuration asks: in half precision, sharded over ranks,
/// recomputed. In half precision, floating-point inputs are converted and outputs are converted
/// back to float32, so that losses are computed in float32.
///
/// Inside Program::loss() a piece may run any number of times. Outside it (to collect experience,
/// to inspect samples) call it under at::NoGradGuard. With ZeRO stage 3 every rank must run the
/// same pieces in the same order.
class TRIREME_API Network {
 public:
  struct Impl;
  explicit Network(Impl& impl) : impl_(impl) {}

  /// Runs a piece that returns one tensor. Throws UsageError if no piece has this path.
  template <class... Inputs>
  at::Tensor run(const std::string& path, const Inputs&... inputs) {
    static_assert((std::is_convertible_v<const Inputs&, at::Tensor> && ...),
                  "a piece's inputs are tensors");
    return only(path, run_list(path, {at::Tensor(inputs)...}));
  }
  /// Runs a piece that returns several tensors. Throws UsageError if no piece has this path.
  std::vector<at::Tensor> run_list(const std::string& path, const std::vector<at::Tensor>& inputs);
  /// Returns the piece's module. Its parameters can be read between steps, at stages below 3.
  torch::nn::Module& module(const std::string& path);
  /// The pieces that this rank has, in the order of Program::make(): all of them, or in a pipeline
  /// those of its stages.
  const std::vector<std::string>& paths() const;

 private:
  static at::Tensor only(const std::string& path, std::vector<at::Tensor> outputs);
  Impl& impl_;
};

}  // namespace trireme
