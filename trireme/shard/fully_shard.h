// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/shard/fully_sharded.h"

namespace trireme {

namespace detail {

template <class T>
constexpr bool is_tensor_v = std::is_same_v<std::decay_t<T>, at::Tensor>;

// What a forward returns, as a list of tensors and back.
template <class R>
struct UnitResult;
template <>
struct UnitResult<at::Tensor> {
  static std::vector<at::Tensor> list(at::Tensor t) { return {std::move(t)}; }
  static at::Tensor from(std::vector<at::Tensor> l) { return std::move(l[0]); }
};
template <>
struct UnitResult<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> list(std::vector<at::Tensor> l) { return l; }
  static std::vector<at::Tensor> from(std::vector<at::Tensor> l) { return l; }
};
template <class... T>
struct UnitResult<std::tuple<T...>> {
  static_assert((is_tensor_v<T> && ...), "a unit's forward returns tensors");
  static std::vector<at::Tensor> list(std::tuple<T...> r) {
    return std::apply([](auto&... t) { return std::vector<at::Tensor>{t...}; }, r);
  }
  static std::tuple<T...> from(std::vector<at::Tensor> l) {
    size_t next = 0;
    return std::tuple<T...>{(static_cast<void>(sizeof(T)), std::move(l[next++]))...};
  }
};

}  // namespace detail

/// A module whose parameters are whole only in its forward and in the backward of that.
template <class Module>
class FullyShardedModule {
 public:
  FullyShardedModule() = default;
  FullyShardedModule(std::shared_ptr<Module> module, FullySharded::Unit& unit)
      : module_(std::move(module)), unit_(&unit) {}

  /// module->forward(args…). Tensors among the arguments are the unit's inputs; it returns a
  /// tensor, a vector or a tuple of them.
  template <class... Args>
  auto forward(Args&&... args) {
    using Result = std::decay_t<decltype(module_->forward(std::forward<Args>(args)...))>;
    std::tuple<std::decay_t<Args>...> given(std::forward<Args>(args)...);
    std::vector<at::Tensor> inputs;
    each_tensor(given, [&](at::Tensor& t) { inputs.push_back(t); });
    return detail::UnitResult<Result>::from(unit_->run(
        [&](const std::vector<at::Tensor>& entered) {
          size_t next = 0;
          each_tensor(given, [&](at::Tensor& t) { t = entered[next++]; });
          return detail::UnitResult<Result>::list(
              std::apply([&](auto&... a) { return module_->forward(a...); }, given));
        },
        inputs));
  }
  /// The module as it is: to be registered in its parent.
  const std::shared_ptr<Module>& module() const { return module_; }
  /// To run something else than forward() in it: unit().run(…).
  FullySharded::Unit& unit() const { return *unit_; }
  Module* operator->() const { return module_.get(); }
  explicit operator bool() const { return module_ != nullptr; }

 private:
  template <class Tuple, class F>
  static void each_tensor(Tuple& tuple, const F& f) {
    std::apply(
        [&](auto&... a) {
          (
              [&] {
                if constexpr (detail::is_tensor_v<decltype(a)>) f(a);
              }(),
              ...);
        },
        tuple);
  }

  std::shared_ptr<Module> module_;
  FullySharded::Unit* unit_ = nullptr;
};

/// `module` becomes a unit of `sharded` (torch.distributed.fsdp.fully_shard). `path`: where it is
/// in the network, "blocks.3".
template <class Module>
FullyShardedModule<Module> fully_shard(std::shared_ptr<Module> module, FullySharded& sharded,
                                       const std::string& path) {
  FullySharded::Unit& unit = sharded.unit(path, *module);
  return {std::move(module), unit};
}
/// A module holder's.
template <class Module>
FullyShardedModule<Module> fully_shard(const torch::nn::ModuleHolder<Module>& holder,
                                       FullySharded& sharded, const std::string& path) {
  return fully_shard(holder.ptr(), sharded, path);
}

}  // namespace trireme
