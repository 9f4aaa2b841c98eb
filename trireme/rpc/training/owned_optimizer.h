// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/optim/optimizer.h"
#include "trireme/rpc/remote.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

namespace torch::optim {
class Optimizer;
}

namespace trireme::rpc {

/// The optimizer of the parameters that this worker owns, for the DistributedOptimizer of whoever
/// trains them (rpc/training/distributed_optimizer.h).
///
///   auto optimizer = std::make_shared<rpc::OwnedOptimizer>(
///       parameters, [](NamedTensors own) { return make_adamw(std::move(own)); });
///   auto me = rpc::init({.name = "server0",
///                        .offers = {rpc::autograd::offer(), rpc::offer(optimizer), …}});
///
/// A step takes the gradients of the context that it was called within; grad() of the parameters
/// is neither read nor written. Steps of several trainers come one after the other here, each
/// whole, in the order of their arrival, which may be another on another owner; forwards and
/// backwards that are under way do not wait for them (as with torch's, "hogwild": they read what is
/// there, and a step in between is not an error of autograd). Threads: any.
class TRIREME_API OwnedOptimizer {
 public:
  /// `make` is given the same parameters under other handles, which share their memory.
  using Make = std::function<std::unique_ptr<Optimizer>(NamedTensors)>;
  OwnedOptimizer(const NamedTensors& parameters, const Make& make);
  /// One of torch::optim's; a step sets lr of all its groups.
  using MakeTorch =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;
  OwnedOptimizer(const NamedTensors& parameters, const MakeTorch& make);
  ~OwnedOptimizer();
  OwnedOptimizer(const OwnedOptimizer&) = delete;

  /// Steps taken.
  int64_t steps() const;
  /// The optimizer's, by the parameters' names, as of any other (a checkpoint's, say). It holds up
  /// steps.
  void state(StateVisitor& visitor);

  // What a DistributedOptimizer calls.
  double norm() const;
  int64_t step(double lr, double grad_scale);

 private:
  struct Gradients;

  const NamedTensors parameters_;
  const NamedTensors handles_;
  mutable std::mutex mutex_;
  std::unique_ptr<Optimizer> ours_;
  std::unique_ptr<torch::optim::Optimizer> torchs_;
  int64_t steps_ = 0;
};

/// For rpc::Options::offers.
TRIREME_API Offer offer(std::shared_ptr<OwnedOptimizer> optimizer);

namespace detail {
// Names that TRIREME_REMOTE cannot give.
struct OptimizerNorm {
  static constexpr const char* kName = "trireme.optimizer.norm";
  static constexpr auto kFunction = &OwnedOptimizer::norm;
};
struct OptimizerStep {
  static constexpr const char* kName = "trireme.optimizer.step";
  static constexpr auto kFunction = &OwnedOptimizer::step;
};
}  // namespace detail

}  // namespace trireme::rpc
