// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/shard/fully_sharded.h"
#include "trireme/tensor/each_tensor.h"

namespace trireme {

/// A module whose parameters are whole only during its forward and the matching backward.
template <class Module>
class FullyShardedModule {
 public:
  FullyShardedModule() = default;
  FullyShardedModule(std::shared_ptr<Module> module, FullySharded::Unit& unit)
      : module_(std::move(module)), unit_(&unit) {}

  /// Calls module->forward(args…). Tensors among the arguments are the unit's inputs. The arguments
  /// and the result may be tensors, or optionals, tuples, pairs, arrays, vectors and maps of them,
  /// nested to any depth: an LSTM can be a unit as it is. (Maps must iterate in the same order on
  /// all ranks.)
  template <class... Args>
  auto forward(Args&&... args) {
    using Result = std::decay_t<decltype(module_->forward(std::forward<Args>(args)...))>;
    static_assert(detail::may_hold_tensors<Result>(),
                  "a unit's forward must return tensors: one, or an optional, tuple, pair, array, "
                  "vector or map of them");
    std::tuple<std::decay_t<Args>...> given(std::forward<Args>(args)...);
    std::vector<at::Tensor> inputs;
    detail::each_tensor(given, [&](at::Tensor& t) { inputs.push_back(t); });
    /// First as the module returned it, then with the unit's tensors in it.
    std::optional<Result> result;
    const std::vector<at::Tensor> outputs = unit_->run(
        [&](const std::vector<at::Tensor>& entered) {
          size_t next = 0;
          detail::each_tensor(given, [&](at::Tensor& t) { t = entered[next++]; });
          result.emplace(std::apply([&](auto&... a) { return module_->forward(a...); }, given));
          std::vector<at::Tensor> list;
          detail::each_tensor(*result, [&](at::Tensor& t) { list.push_back(t); });
          return list;
        },
        inputs);
    size_t next = 0;
    detail::each_tensor(*result, [&](at::Tensor& t) { t = outputs[next++]; });
    return *std::move(result);
  }
  /// The module itself, to be registered in its parent.
  const std::shared_ptr<Module>& module() const { return module_; }
  /// To run something other than forward() in the unit: unit().run(…).
  FullySharded::Unit& unit() const { return *unit_; }
  Module* operator->() const { return module_.get(); }
  explicit operator bool() const { return module_ != nullptr; }

 private:
  std::shared_ptr<Module> module_;
  FullySharded::Unit* unit_ = nullptr;
};

/// Makes `module` a unit of `sharded` (torch.distributed.fsdp.fully_shard). `path`: its path in the
/// network, such as "blocks.3".
template <class Module>
FullyShardedModule<Module> fully_shard(std::shared_ptr<Module> module, FullySharded& sharded,
                                       const std::string& path) {
  FullySharded::Unit& unit = sharded.unit(path, *module);
  return {std::move(module), unit};
}
/// The same for a module holder.
template <class Module>
FullyShardedModule<Module> fully_shard(const torch::nn::ModuleHolder<Module>& holder,
                                       FullySharded& sharded, const std::string& path) {
  return fully_shard(holder.ptr(), sharded, path);
}

}  // namespace trireme
