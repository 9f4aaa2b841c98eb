// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

// Calls a module's forward, whatever its parameters; torch::nn::Module has no virtual forward.
namespace trireme {

namespace detail {

inline void add_outputs(std::vector<at::Tensor>& all, at::Tensor t) { all.push_back(std::move(t)); }
inline void add_outputs(std::vector<at::Tensor>& all, const std::vector<at::Tensor>& list) {
  all.insert(all.end(), list.begin(), list.end());
}
template <class... T>
void add_outputs(std::vector<at::Tensor>& all, const std::tuple<T...>& parts) {
  std::apply([&](const auto&... part) { (add_outputs(all, part), ...); }, parts);
}

constexpr size_t kMostInputs = 8;

template <class Holder, size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  return requires(Holder & m, const at::Tensor& x) { m->forward((static_cast<void>(I), x)...); };
}

/// Calls module->forward(inputs[0], inputs[1], …), or forward(inputs) if it takes a vector. Throws
/// UsageError if it does not take that many inputs.
template <size_t N = 1, class Holder>
std::vector<at::Tensor> call_forward(Holder& module, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  if constexpr (N <= kMostInputs) {
    if constexpr (takes_tensors<Holder>(std::make_index_sequence<N>())) {
      if (inputs.size() == N) {
        [&]<size_t... I>(std::index_sequence<I...>) {
          add_outputs(outputs, module->forward(inputs[I]...));
        }
        (std::make_index_sequence<N>());
        return outputs;
      }
    }
    return call_forward<N + 1>(module, inputs);
  } else if constexpr (requires { add_outputs(outputs, module->forward(inputs)); }) {
    add_outputs(outputs, module->forward(inputs));
    return outputs;
  } else {
    throw UsageError("the module's forward does not take " + std::to_string(inputs.size()) +
                     " tensors");
  }
}

}  // namespace detail

}  // namespace trireme
