// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/rpc/object/rref.h"
#include "trireme/rpc/remote.h"
#include "trireme/rpc/training/module_state.h"
#include "trireme/rpc/training/owned_optimizer.h"

// Where modules are made for other workers, and called by their numbers.
namespace trireme::rpc::detail {

/// N: what TRIREME_REMOTE_MODULE named. A module lives until its maker lets go of it, or is gone.
/// Threads: any.
template <class N>
class ModuleHost final : public LineWatcher {
 public:
  using Module = typename N::Module;
  using Forward = ShapeOf<decltype(&Module::forward)>;
  using Arguments = typename Values<typename Forward::Parameters>::Type;
  using Result = std::remove_cvref_t<typename Forward::Returned>;

  explicit ModuleHost(OwnedOptimizer::Make make_optimizer)
      : make_optimizer_(std::move(make_optimizer)) {}

  uint64_t make(Call& call, const typename N::Constructor& arguments) {
    Hosted made;
    made.module = std::apply(
        [](const auto&... argument) { return std::make_shared<Module>(argument...); }, arguments);
    made.maker = dynamic_cast<Answering&>(call).line();
    if (make_optimizer_)
      made.optimizer =
          std::make_shared<OwnedOptimizer>(trained_parameters_of(*made.module), make_optimizer_);
    const auto maker = made.maker.lock();
    uint64_t number = 0;
    {
      std::lock_guard lock(mutex_);
      number = ++last_;
      hosted_.emplace(number, std::move(made));
    }
    if (maker && !maker->open()) lost(*maker);  // it may have been told before this was noted
    return number;
  }
  void let_go(uint64_t number) {
    Hosted gone;  // destroyed outside of the lock
    std::lock_guard lock(mutex_);
    const auto place = hosted_.find(number);
    if (place == hosted_.end()) return;
    gone = std::move(place->second);
    hosted_.erase(place);
  }
  Result forward(uint64_t number, Arguments arguments) {
    const auto module = find(number).module;
    return std::apply([&](auto&... argument) { return module->forward(argument...); }, arguments);
  }
  void train(uint64_t number, bool on) { find(number).module->train(on); }
  StateDict state_dict(uint64_t number) { return state_dict_of(*find(number).module); }
  void load_state_dict(uint64_t number, const StateDict& state) {
    load_state_dict_into(*find(number).module, state);
  }
  /// The caller's RRefs keep them, and not the module.
  std::vector<RRef<at::Tensor>> parameters(Call& call, uint64_t number) {
    auto agent = dynamic_cast<Answering&>(call).agent();
    check<Aborted>(agent != nullptr, "the worker of module '{}' has shut down", N::kName);
    const Worker me = Access::worker(std::move(agent));
    std::vector<RRef<at::Tensor>> all;
    for (const at::Tensor& parameter : find(number).module->parameters())
      all.push_back(own(me, std::make_shared<at::Tensor>(parameter)));
    return all;
  }
  std::vector<ParameterInfo> parameter_info(uint64_t number) {
    return parameters_of(*find(number).module);
  }
  double norm(uint64_t number) { return optimizer(number)->norm(); }
  int64_t step(uint64_t number, double lr, double grad_scale) {
    return optimizer(number)->step(lr, grad_scale);
  }

  void lost(const Line& line) override {
    std::vector<Hosted> gone;
    std::lock_guard lock(mutex_);
    for (auto place = hosted_.begin(); place != hosted_.end();) {
      const auto maker = place->second.maker.lock();
      if (maker && maker.get() != &line) {
        ++place;
        continue;
      }
      gone.push_back(std::move(place->second));
      place = hosted_.erase(place);
    }
  }
  size_t count() const {
    std::lock_guard lock(mutex_);
    return hosted_.size();
  }

 private:
  struct Hosted {
    std::shared_ptr<Module> module;
    std::shared_ptr<OwnedOptimizer> optimizer;  // null: none
    std::weak_ptr<Line> maker;
  };
  Hosted find(uint64_t number) const {
    std::lock_guard lock(mutex_);
    const auto place = hosted_.find(number);
    check<UsageError>(place != hosted_.end(),
                      "there is no module '{}' of number {} here: its maker has let go of it",
                      N::kName, number);
    return place->second;
  }
  std::shared_ptr<OwnedOptimizer> optimizer(uint64_t number) const {
    auto optimizer = find(number).optimizer;
    check<UsageError>(optimizer != nullptr,
                      "module '{}' has no optimizer here: pass one to rpc::offer_modules",
                      N::kName);
    return optimizer;
  }

  const OwnedOptimizer::Make make_optimizer_;
  mutable std::mutex mutex_;
  uint64_t last_ = 0;
  std::map<uint64_t, Hosted> hosted_;
};

// The methods of a host; their names are the module's with another behind it.
#define TRIREME_MODULE_METHOD(type, which, function)            \
  template <class N>                                            \
  struct type {                                                 \
    static constexpr const char* kName = N::which;              \
    static constexpr auto kFunction = &ModuleHost<N>::function; \
  }
TRIREME_MODULE_METHOD(MakeModule, kMake, make);
TRIREME_MODULE_METHOD(LetGoOfModule, kLetGo, let_go);
TRIREME_MODULE_METHOD(ForwardModule, kForward, forward);
TRIREME_MODULE_METHOD(TrainModule, kTrain, train);
TRIREME_MODULE_METHOD(ModuleState, kState, state_dict);
TRIREME_MODULE_METHOD(LoadModule, kLoad, load_state_dict);
TRIREME_MODULE_METHOD(ModuleParameters, kParameters, parameters);
TRIREME_MODULE_METHOD(ModuleParameterInfo, kInfo, parameter_info);
TRIREME_MODULE_METHOD(ModuleNorm, kNorm, norm);
TRIREME_MODULE_METHOD(ModuleStep, kStep, step);
#undef TRIREME_MODULE_METHOD

}  // namespace trireme::rpc::detail
