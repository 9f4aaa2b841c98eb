// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/rpc/object/rref.h"
#include "trireme/rpc/remote.h"
#include "trireme/rpc/training/optimized_part.h"
#include "trireme/rpc/training/owned_optimizer.h"

namespace trireme::rpc {

/// For Options::offers: optimizers of this worker's parameters, by the names under which others ask
/// for one (DistributedOptimizer). Nobody else can have one made here.
///
///   rpc::offer_optimizers({{"sgd", [](NamedTensors own) { return make_sgd(std::move(own)); }}})
TRIREME_API Offer offer_optimizers(std::map<std::string, OwnedOptimizer::Make> optimizers);

namespace detail {

/// The optimizers that others have had made here. One lives until who asked for it lets go of it,
/// or is gone. Threads: any.
class OptimizerHost final : public LineWatcher {
 public:
  explicit OptimizerHost(std::map<std::string, OwnedOptimizer::Make> makers)
      : makers_(std::move(makers)) {}

  uint64_t make(Call& call, const std::string& optimizer,
                const std::vector<RRef<at::Tensor>>& parameters);
  void let_go(uint64_t number);
  double norm(uint64_t number) { return find(number)->norm(); }
  int64_t step(uint64_t number, double lr, double grad_scale) {
    return find(number)->step(lr, grad_scale);
  }
  void lost(const Line& line) override;

 private:
  struct Hosted {
    std::shared_ptr<OwnedOptimizer> optimizer;
    std::weak_ptr<Line> maker;
  };
  std::shared_ptr<OwnedOptimizer> find(uint64_t number) const;

  const std::map<std::string, OwnedOptimizer::Make> makers_;
  mutable std::mutex mutex_;
  uint64_t last_ = 0;
  std::map<uint64_t, Hosted> hosted_;
};

/// Has one made at `owner`, where all of these parameters are.
OptimizedPart make_optimizer_at(const Peer& owner, const std::string& optimizer,
                                const std::vector<RRef<at::Tensor>>& parameters);

}  // namespace detail
}  // namespace trireme::rpc
