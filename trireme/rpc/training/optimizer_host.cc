// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/training/optimizer_host.h"

#include <chrono>
#include <set>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::rpc {
namespace detail {
namespace {

// Names that TRIREME_REMOTE cannot give.
struct MakeOptimizerOf {
  static constexpr const char* kName = "trireme.optimizers.make";
  static constexpr auto kFunction = &OptimizerHost::make;
};
struct LetGoOfOptimizer {
  static constexpr const char* kName = "trireme.optimizers.let_go";
  static constexpr auto kFunction = &OptimizerHost::let_go;
};
struct NormOfOptimizer {
  static constexpr const char* kName = "trireme.optimizers.norm";
  static constexpr auto kFunction = &OptimizerHost::norm;
};
struct StepOfOptimizer {
  static constexpr const char* kName = "trireme.optimizers.step";
  static constexpr auto kFunction = &OptimizerHost::step;
};

struct LetGo {
  Peer at;
  void operator()(const uint64_t* number) const {
    const ContextScope none(nullptr);
    Access::make(Access::line(at), std::chrono::seconds(60))
        .async<LetGoOfOptimizer>(*number)
        .consume([](auto&) {});
    delete number;
  }
};

std::string joined(const std::map<std::string, OwnedOptimizer::Make>& makers) {
  std::string names;
  for (const auto& [name, make] : makers) names += (names.empty() ? "'" : ", '") + name + "'";
  return names;
}

}  // namespace

uint64_t OptimizerHost::make(Call& call, const std::string& optimizer,
                             const std::vector<RRef<at::Tensor>>& parameters) {
  const auto maker = makers_.find(optimizer);
  check<UsageError>(maker != makers_.end(),
                    "no optimizer '{}' is offered here, but {}: add it to rpc::offer_optimizers",
                    optimizer, joined(makers_));
  NamedTensors own;
  std::set<const void*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    check<UsageError>(parameters[i].valid(), "parameter {} of an optimizer is an empty RRef", i);
    const auto parameter = parameters[i].local_value();
    check<UsageError>(parameter->defined(), "parameter {} of an optimizer is undefined", i);
    check<UsageError>(seen.insert(parameter->unsafeGetTensorImpl()).second,
                      "parameter {} of an optimizer is given twice", i);
    // As torch's optimizers: one that is frozen gets no gradient, and stays.
    if (parameter->requires_grad()) own.emplace_back(std::to_string(i), *parameter);
  }
  Hosted made{std::make_shared<OwnedOptimizer>(own, maker->second),
              dynamic_cast<Answering&>(call).line()};
  const auto asked = made.maker.lock();
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = ++last_;
    hosted_.emplace(number, std::move(made));
  }
  if (asked && !asked->open()) lost(*asked);  // it may have been told before this was noted
  return number;
}

void OptimizerHost::let_go(uint64_t number) {
  Hosted gone;  // destroyed outside of the lock
  std::lock_guard lock(mutex_);
  const auto place = hosted_.find(number);
  if (place == hosted_.end()) return;
  gone = std::move(place->second);
  hosted_.erase(place);
}

void OptimizerHost::lost(const Line& line) {
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

std::shared_ptr<OwnedOptimizer> OptimizerHost::find(uint64_t number) const {
  std::lock_guard lock(mutex_);
  const auto place = hosted_.find(number);
  check<UsageError>(place != hosted_.end(),
                    "there is no optimizer of number {} here: who had it made has let go of it",
                    number);
  return place->second.optimizer;
}

OptimizedPart make_optimizer_at(const Peer& owner, const std::string& optimizer,
                                const std::vector<RRef<at::Tensor>>& parameters) {
  check<UsageError>(Access::line(owner)->offers(MakeOptimizerOf::kName),
                    "worker '{}' makes no optimizers: add rpc::offer_optimizers() to its offers",
                    owner.name());
  const ContextScope none(nullptr);
  const std::shared_ptr<const uint64_t> number(
      new uint64_t(owner.sync<MakeOptimizerOf>(optimizer, parameters)), LetGo{owner});
  return {[owner, number] { return owner.async<NormOfOptimizer>(*number); },
          [owner, number](double lr, double grad_scale) {
            return owner.async<StepOfOptimizer>(*number, lr, grad_scale);
          }};
}

}  // namespace detail

Offer offer_optimizers(std::map<std::string, OwnedOptimizer::Make> optimizers) {
  for (const auto& [name, make] : optimizers)
    check<UsageError>(make != nullptr, "rpc::offer_optimizers: '{}' makes nothing", name);
  auto host = std::make_shared<detail::OptimizerHost>(std::move(optimizers));
  Offer offer = rpc::offer<detail::MakeOptimizerOf, detail::LetGoOfOptimizer,
                           detail::NormOfOptimizer, detail::StepOfOptimizer>(host);
  offer.watchers.push_back(std::move(host));
  return offer;
}

}  // namespace trireme::rpc
