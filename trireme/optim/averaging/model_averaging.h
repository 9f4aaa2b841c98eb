// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/optim/averaging/averaging_plan.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

// Less communication: ranks step separately, each on its own gradients, and average their weights
// from time to time. The traffic is one all_reduce of the weights per period instead of one of the
// gradients per step.
namespace trireme {

/// Averages the weights after a step if that is due. For the first `start_step` steps, gradients
/// are reduced over all ranks (post-local SGD); steps_locally() says when that is over:
///
///   auto averager = average_periodically(parameters, world, {.period = 8, .start_step = 100});
///   CommHook hook = local_sgd_hook([&] { return averager->steps_locally(); });
///   DistributedDataParallel ddp(net, world, {.hook = hook});
///   loop: backward, optimizer.step(), averager->step();
///
/// Parameters: float32 or float64 leaves, all of one dtype, with the same values on every rank at
/// construction; they are written in place. Every rank calls step() after each optimizer step, on
/// one thread. PeerLost if a rank died and Timeout if one does not arrive, as for any collective;
/// weights that were not averaged before that are still this rank's unaveraged ones. NumericError
/// on every rank, naming the first rank whose weights are not finite.
class TRIREME_API ModelAverager {
 public:
  virtual ~ModelAverager();
  ModelAverager(const ModelAverager&) = delete;

  /// Call it after each step of the optimizer.
  void step();
  /// Whether the next step is local: its gradients are not reduced over all ranks.
  bool steps_locally() const { return steps_ >= start_; }
  /// Whether all ranks hold the same weights now.
  bool in_sync() const { return in_sync_; }
  int64_t steps() const { return steps_; }
  /// State that is the same on all ranks; saving the weights is the caller's task.
  virtual void state(StateVisitor& visitor);

 protected:
  explicit ModelAverager(int64_t start) : start_(start) {}
  /// Called after the last step with reduced gradients (not if start is 0).
  virtual void begin() {}
  /// Called after `n` local steps: averages if that is due. Returns whether all ranks hold the
  /// same weights again.
  virtual bool after_local_steps(int64_t n) = 0;

 private:
  const int64_t start_;
  int64_t steps_ = 0;
  bool in_sync_ = true;
};

struct PeriodicOptions {
  int64_t period = 4;
  int64_t start_step = 0;
};
/// The mean of the weights every `period` steps: local SGD (Stich 2019); with a start_step,
/// post-local SGD (Lin et al. 2020; torch's PeriodicModelAverager). `buffers`: those of a
/// floating-point dtype are averaged, too.
TRIREME_API std::unique_ptr<ModelAverager> average_periodically(NamedTensors parameters,
                                                                Group group,
                                                                const PeriodicOptions& options = {},
                                                                const NamedTensors& buffers = {});

/// The mean among neighbouring ranks often and among all ranks rarely: `levels` go from small
/// groups to all ranks, and each period is a multiple of the one before. Of the levels that are
/// due, the widest is used. Every rank makes it (it splits groups). Torch's
/// HierarchicalModelAverager.
TRIREME_API std::unique_ptr<ModelAverager> average_hierarchically(
    NamedTensors parameters, Group group, const std::vector<AveragingLevel>& levels,
    int64_t start_step = 0, const NamedTensors& buffers = {});

struct DiLoCoOptions {
  int64_t period = 50;
  int64_t start_step = 0;
  double outer_lr = 0.7;
  double outer_momentum = 0.6;  // the paper's 0.9 is for periods of hundreds of steps
  bool nesterov = true;
  /// Replaces a flat tensor by its mean over ranks in place, with the same bits on all; empty: an
  /// all_reduce. A compressed reduction can be plugged in here.
  std::function<void(const at::Tensor& flat)> mean{};
};
/// DiLoCo (Douillard et al. 2023): every `period` steps, the change of each rank's weights (old −
/// new) is averaged and used as the gradient of an outer SGD with Nesterov momentum; all ranks
/// continue from its result. Extra memory: 12 bytes per float32 parameter, for the weights at the
/// last period, the outer momentum and the send buffer.
TRIREME_API std::unique_ptr<ModelAverager> diloco(NamedTensors parameters, Group group,
                                                  const DiLoCoOptions& options = {},
                                                  const NamedTensors& buffers = {});

/// Replaces every tensor by its mean over the group's ranks.
TRIREME_API void average_tensors(Group& group, const NamedTensors& tensors);

}  // namespace trireme
