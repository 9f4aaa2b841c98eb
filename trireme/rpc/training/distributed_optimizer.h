// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/rpc/autograd/context.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/rpc/object/rref.h"
#include "trireme/rpc/rpc.h"
#include "trireme/rpc/training/optimized_part.h"

namespace trireme::rpc {

struct StepOptions {
  /// Of all owners; of a schedule: its lr_at(step).
  double lr = 0;
  /// Gradients are scaled so that their norm over all owners is at most this; 0: they are not
  /// measured.
  double max_norm = 0;
  /// Gradients are multiplied by this, before they are measured.
  double grad_scale = 1;
};

struct StepDone {
  double norm = 0;         // of all gradients, scaled; 0: it was not measured
  double coefficient = 1;  // by which they were clipped
};

/// Steps the optimizers of several workers, each of which owns parameters and offers an
/// OwnedOptimizer. One call for each owner and step; with max_norm one more, and the norm is that
/// of all gradients together. (torch.distributed.optim.DistributedOptimizer.)
///
///   rpc::DistributedOptimizer optimizer(me, {"server0", "server1", me.name()});
///   …
///   rpc::autograd::Context context(me);
///   context.backward({loss});
///   optimizer.step(context, {.lr = schedule.lr_at(step), .max_norm = 1});
///
/// Threads: any; steps of several contexts at once are several steps.
class TRIREME_API DistributedOptimizer {
 public:
  /// Finds them. UsageError: a name twice, or one that offers no OwnedOptimizer.
  DistributedOptimizer(const Worker& me, const std::vector<std::string>& owners,
                       PeerOptions options = {});
  /// As torch's: an optimizer is made at each worker that has some of these parameters, by the name
  /// under which that worker offers it (rpc::offer_optimizers); `lr` is what step(context) takes.
  ///
  ///   rpc::DistributedOptimizer optimizer(me, "sgd", part.parameters(), 0.05);
  ///
  /// It keeps the optimizers, and these the parameters, until its last copy is destroyed.
  /// UsageError: no parameters, one twice, an empty RRef, a worker that offers no such optimizer.
  DistributedOptimizer(const Worker& me, const std::string& optimizer,
                       const std::vector<RRef<at::Tensor>>& parameters, double lr,
                       PeerOptions options = {});
  /// Of modules, say: {encoder.optimizer(), decoder.optimizer()} (rpc/training/remote_module.h).
  explicit DistributedOptimizer(std::vector<OptimizedPart> parts) : parts_(std::move(parts)) {}
  void add(OptimizedPart part) { parts_.push_back(std::move(part)); }

  /// Takes the gradients that are in this context. Returns when all owners have stepped; an owner
  /// whose parameters got no gradient there leaves them as they are.
  ///
  /// NumericError: the norm is not finite, and nobody has stepped. Anything else that an owner
  /// throws is thrown when all have answered: others have stepped then, and the text says who has
  /// not.
  StepDone step(const autograd::Context& context, const StepOptions& options) const;
  /// The same with the constructor's lr. UsageError: it was given none.
  StepDone step(const autograd::Context& context) const;

 private:
  std::vector<OptimizedPart> parts_;
  std::optional<double> lr_;
};

}  // namespace trireme::rpc
