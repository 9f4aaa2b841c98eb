// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/rpc/object/rref.h"
#include "trireme/rpc/rpc.h"
#include "trireme/rpc/training/module_host.h"
#include "trireme/rpc/training/optimized_part.h"

// A torch::nn::Module that lives at another worker:
//
//   struct Encoder : torch::nn::Module {
//     Encoder(int64_t inputs, int64_t outputs);
//     at::Tensor forward(const at::Tensor& x);
//   };
//   TRIREME_REMOTE_MODULE(encoder, Encoder, int64_t, int64_t);    // in both programs
//
//   // where it is to live
//   rpc::init({.name = "server0", .offers = {rpc::autograd::offer(),
//   rpc::offer_modules<encoder>()}, …});
//   // where it is used
//   rpc::RemoteModule<encoder> part(me.peer("server0"), 20, 10);  // made there
//   at::Tensor y = part.forward(x);                               // within a Context: with its
//   graph
//
// No code travels: what is made is what the other program was compiled with and offers, from values
// of the constructor's types. Modules live in the memory of the CPU.
// (torch.distributed.nn.RemoteModule)
//
// `name` is one name in all programs of a job; behind the class stand the types of the
// constructor's parameters. They, and those of forward() and its result, are what remote calls can
// take.
#define TRIREME_REMOTE_MODULE(name, class_, ...)                                \
  struct name {                                                                 \
    using Module = class_;                                                      \
    using Constructor = std::tuple<__VA_ARGS__>;                                \
    static constexpr const char* kName = #name;                                 \
    static constexpr const char* kMake = "trireme.module." #name ".make";       \
    static constexpr const char* kLetGo = "trireme.module." #name ".let_go";    \
    static constexpr const char* kForward = "trireme.module." #name ".forward"; \
    static constexpr const char* kTrain = "trireme.module." #name ".train";     \
    static constexpr const char* kState = "trireme.module." #name ".state";     \
    static constexpr const char* kLoad = "trireme.module." #name ".load";       \
    static constexpr const char* kParameters = "trireme.module." #name ".own";  \
    static constexpr const char* kInfo = "trireme.module." #name ".parameters"; \
    static constexpr const char* kNorm = "trireme.module." #name ".norm";       \
    static constexpr const char* kStep = "trireme.module." #name ".step";       \
  }

namespace trireme::rpc {

struct ModuleOffer {
  /// Of each module that is made: the optimizer of its parameters that require a gradient, for a
  /// DistributedOptimizer. None: whoever trains it has another way.
  OwnedOptimizer::Make optimizer = {};
};

/// For rpc::Options::offers: others may make modules N at this worker. Calls of one module may run
/// at once, on threads of this worker.
template <class N>
Offer offer_modules(ModuleOffer options = {}) {
  using namespace detail;
  auto host = std::make_shared<ModuleHost<N>>(std::move(options.optimizer));
  Offer offer = rpc::offer<MakeModule<N>, LetGoOfModule<N>, ForwardModule<N>, TrainModule<N>,
                           ModuleState<N>, LoadModule<N>, ModuleParameters<N>,
                           ModuleParameterInfo<N>, ModuleNorm<N>, ModuleStep<N>>(host);
  offer.watchers.push_back(std::move(host));
  return offer;
}

/// One module at another worker, or at this one. Copies are the same; it is let go of with the last
/// one, and when this worker is gone. Its deadlines are the peer's. What a call throws: as any
/// remote call, and what the module does, as RemoteError. Threads: any.
template <class N>
class RemoteModule {
 public:
  using Result = typename detail::ModuleHost<N>::Result;

  /// Makes it there. UsageError: that worker makes no such modules.
  template <class... A>
  requires(detail::Fits<typename N::Constructor, A...>::value) explicit RemoteModule(
      Peer at, A&&... arguments)
      : at_(std::move(at)) {
    check<UsageError>(
        detail::Access::line(at_)->offers(N::kMake),
        "worker '{}' makes no modules '{}': add rpc::offer_modules<{}>() to its offers", at_.name(),
        N::kName, N::kName);
    const detail::ContextScope none(nullptr);
    const uint64_t number = at_.template sync<detail::MakeModule<N>>(
        typename N::Constructor(std::forward<A>(arguments)...));
    number_ = std::shared_ptr<const uint64_t>(new uint64_t(number), LetGo{at_});
  }

  /// The worker where it lives.
  const std::string& worker() const { return at_.name(); }

  template <class... A>
  requires(detail::Fits<typename detail::ModuleHost<N>::Arguments, A...>::value)
      Future<Result> forward_async(A&&... arguments)
  const {
    return at_.template async<detail::ForwardModule<N>>(
        *number_, typename detail::ModuleHost<N>::Arguments(std::forward<A>(arguments)...));
  }
  template <class... A>
  requires(detail::Fits<typename detail::ModuleHost<N>::Arguments, A...>::value) Result
      forward(A&&... arguments)
  const { return forward_async(std::forward<A>(arguments)...).get(); }

  void train(bool on = true) const { at_.template sync<detail::TrainModule<N>>(*number_, on); }
  void eval() const { train(false); }
  /// Its parameters, in the module's order, where they are: for a DistributedOptimizer, or
  /// to_here() for a copy (within a Context: with its graph). They outlive this handle. Destroy
  /// them before this worker's shutdown(). (torch's remote_parameters())
  std::vector<RRef<at::Tensor>> parameters() const {
    const detail::ContextScope none(nullptr);
    return at_.template sync<detail::ModuleParameters<N>>(*number_);
  }
  /// Their names and sizes, in the same order.
  std::vector<ParameterInfo> parameter_info() const {
    return at_.template sync<detail::ModuleParameterInfo<N>>(*number_);
  }
  /// A copy of its parameters and buffers, by name.
  StateDict state_dict() const { return at_.template sync<detail::ModuleState<N>>(*number_); }
  /// Mismatch, and nothing has changed: names or sizes are others.
  void load_state_dict(const StateDict& state) const {
    const detail::ContextScope none(nullptr);
    const at::NoGradGuard values;
    at_.template sync<detail::LoadModule<N>>(*number_, state);
  }
  /// For a DistributedOptimizer. Steps fail with UsageError where it was offered without one.
  OptimizedPart optimizer() const {
    return {
        [at = at_, number = number_] { return at.template async<detail::ModuleNorm<N>>(*number); },
        [at = at_, number = number_](double lr, double grad_scale) {
          return at.template async<detail::ModuleStep<N>>(*number, lr, grad_scale);
        }};
  }

 private:
  struct LetGo {
    Peer at;
    void operator()(const uint64_t* number) const {
      const detail::ContextScope none(nullptr);
      detail::Access::make(detail::Access::line(at), std::chrono::seconds(60))
          .template async<detail::LetGoOfModule<N>>(*number)
          .consume([](auto&) {});
      delete number;
    }
  };

  Peer at_;
  std::shared_ptr<const uint64_t> number_;
};

}  // namespace trireme::rpc
