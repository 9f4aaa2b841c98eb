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

/// The pieces of a program, run as the configuration asks: in half precision, split over ranks,
/// recomputed. In half precision floating inputs are converted on the way in, and outputs are
/// float32 again, so that losses are computed in float32.
///
/// Inside of Program::loss() a piece may run any number of times. Outside of it (to collect
/// experience, to look at samples) call it under at::NoGradGuard. With ZeRO stage 3 every rank runs
/// the same pieces in the same order.
class TRIREME_API Network {
 public:
  struct Impl;
  explicit Network(Impl& impl) : impl_(impl) {}

  /// A piece that returns one tensor.
  template <class... Inputs>
  at::Tensor run(const std::string& path, const Inputs&... inputs) {
    static_assert((std::is_convertible_v<const Inputs&, at::Tensor> && ...),
                  "a piece's inputs are tensors");
    return only(path, run_list(path, {at::Tensor(inputs)...}));
  }
  /// A piece that returns several. UsageError for a path that no piece has.
  std::vector<at::Tensor> run_list(const std::string& path, const std::vector<at::Tensor>& inputs);
  /// The piece's module. Its parameters are readable between steps at the stages below 3.
  torch::nn::Module& module(const std::string& path);

 private:
  static at::Tensor only(const std::string& path, std::vector<at::Tensor> outputs);
  Impl& impl_;
};

}  // namespace trireme
