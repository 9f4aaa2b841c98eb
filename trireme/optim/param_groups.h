// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "trireme/base/export.h"

namespace torch::optim {
class Optimizer;
}

namespace trireme::lr_scheduler {

/// The learning rates that a schedule sets, one for each parameter group. A handle: copies refer to
/// the same groups. Chained schedules must share one, since it also stores the initial rates of the
/// groups (torch's `initial_lr`).
class TRIREME_API ParamGroups {
 public:
  /// The groups of a torch::optim optimizer, which must outlive this. For a ShardedOptimizer, pass
  /// its torch_optimizer().
  ParamGroups(torch::optim::Optimizer& optimizer);
  /// A single rate, for an optimizer whose step() takes it as an argument:
  /// optimizer->step(schedule.lr()).
  ParamGroups(double lr);
  explicit ParamGroups(const std::vector<double>& lrs);

  size_t size() const;
  double lr(size_t group = 0) const;
  void set_lr(size_t group, double lr);
  /// Makes the current rates the initial ones, unless a schedule has already done so.
  void remember_initial_lr();
  double initial_lr(size_t group) const;
  void set_initial_lr(const std::vector<double>& lrs);
  /// SGD and RMSprop: momentum; Adam and AdamW: beta1.
  bool has_momentum() const;
  /// UsageError if the optimizer has none.
  void set_momentum(size_t group, double momentum);
  bool same_as(const ParamGroups& other) const { return impl_ == other.impl_; }

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme::lr_scheduler
