// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/optim/averaging_plan.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

// Less communication: ranks step by themselves, each on its own gradients, and now and then become
// one model again. Bytes between ranks are those of one all_reduce of the weights a period, in
// place of one of the gradients a step.
namespace trireme {

/// What happens to the weights after a step. Until `start_step` steps were taken ranks are to add
/// gradients over all of them (post-local SGD); apart() says when they no longer are:
///
///   auto averager = average_periodically(parameters, world, {.period = 8, .start_step = 100});
///   DistributedDataParallel ddp(net, world, {.hook = apart_hook([&] { return averager->apart();
///   })}); loop: backward, optimizer.step(), averager->step();
///
/// Parameters: float32 or float64 leaves, all of one dtype, the same values on every rank when it
/// is made; they are written in place. Every rank calls step() after each optimizer step, on one
/// thread. A rank that died is PeerLost, one that does not come Timeout, as of any collective;
/// weights are then this rank's own. NumericError on every rank, naming the first whose weights are
/// not finite.
class TRIREME_API ModelAverager {
 public:
  virtual ~ModelAverager();
  ModelAverager(const ModelAverager&) = delete;

  /// The optimizer has stepped.
  void step();
  /// In the next step ranks keep their gradients to themselves.
  bool apart() const { return steps_ >= start_; }
  /// Ranks hold the same weights now.
  bool together() const { return together_; }
  int64_t steps() const { return steps_; }
  /// Of what is the same on all ranks; the weights are the caller's.
  virtual void state(StateVisitor& visitor);

 protected:
  explicit ModelAverager(int64_t start) : start_(start) {}
  /// The last step that all take as one is behind (not called where start is 0).
  virtual void begin() {}
  /// So many steps apart are behind: averages where that is due. True: all ranks are one again.
  virtual bool taken(int64_t steps) = 0;

 private:
  const int64_t start_;
  int64_t steps_ = 0;
  bool together_ = true;
};

struct PeriodicOptions {
  int64_t period = 4;
  int64_t start_step = 0;
};
/// The mean of the weights every `period` steps: local SGD (Stich 2019); with a start_step
/// post-local SGD (Lin et al. 2020; torch's PeriodicModelAverager). `buffers`: averaged with them,
/// where they are floating.
TRIREME_API std::unique_ptr<ModelAverager> average_periodically(NamedTensors parameters,
                                                                Group group,
                                                                const PeriodicOptions& options = {},
                                                                const NamedTensors& buffers = {});

/// … among neighbours often, among all seldom: `levels` from small groups to all ranks, periods
/// multiples of each other. Of those that are due the widest is taken. Every rank makes it (groups
/// are split off). Torch's HierarchicalModelAverager.
TRIREME_API std::unique_ptr<ModelAverager> average_hierarchically(
    NamedTensors parameters, Group group, const std::vector<AveragingLevel>& levels,
    int64_t start_step = 0, const NamedTensors& buffers = {});

struct DiLoCoOptions {
  int64_t period = 50;
  int64_t start_step = 0;
  double outer_lr = 0.7;
  double outer_momentum = 0.6;  // the paper's 0.9 is for hundreds of steps a period
  bool nesterov = true;
  /// Makes a flat tensor the mean over ranks, in place, the same bits on all; empty: an all_reduce.
  /// A compressed one goes here.
  std::function<void(const at::Tensor& flat)> mean{};
};
/// DiLoCo (Douillard et al. 2023): every `period` steps the way that ranks have gone, weights then
/// − weights now, is averaged and taken as the gradient of an outer SGD with Nesterov momentum; all
/// ranks go on from its result. Adds 12 bytes a float32 parameter: the weights at the last period,
/// the outer momentum, and what is sent.
TRIREME_API std::unique_ptr<ModelAverager> diloco(NamedTensors parameters, Group group,
                                                  const DiLoCoOptions& options = {},
                                                  const NamedTensors& buffers = {});

/// Every tensor becomes the mean over the group's ranks.
TRIREME_API void average_tensors(Group& group, const NamedTensors& tensors);

}  // namespace trireme
