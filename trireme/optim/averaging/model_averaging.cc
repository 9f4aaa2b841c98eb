// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/averaging/model_averaging.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/optim/averaging/averaging_checks.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {

ModelAverager::~ModelAverager() = default;

void ModelAverager::step() {
  ++steps_;
  if (steps_ == start_) begin();
  if (steps_ <= start_) return;
  Span span("exposed_comm", "average weights");
  in_sync_ = after_local_steps(steps_ - start_);
}

void ModelAverager::state(StateVisitor& visitor) {
  visitor.value("averaging.steps", steps_);
  int64_t one = in_sync_;
  visitor.value("averaging.together", one);
  in_sync_ = one != 0;
}

void average_tensors(Group& group, const NamedTensors& tensors) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> list;
  int64_t bytes = 0;
  auto flush = [&] {
    if (!list.empty()) group.all_reduce_coalesced(list, ReduceOp::avg).wait();
    list.clear();
    bytes = 0;
  };
  for (const auto& [name, t] : unique_tensors(tensors)) {
    if (!list.empty() && (list[0].scalar_type() != t.scalar_type() ||
                          bytes + static_cast<int64_t>(t.nbytes()) > kAveragedAtOnce))
      flush();
    list.push_back(t.detach());
    bytes += static_cast<int64_t>(t.nbytes());
  }
  flush();
}

namespace {

class Periodic final : public ModelAverager {
 public:
  Periodic(NamedTensors tensors, Group group, std::vector<AveragingLevel> levels, int64_t start)
      : ModelAverager(start),
        tensors_(std::move(tensors)),
        world_(group),
        levels_(std::move(levels)) {
    for (const AveragingLevel& level : levels_)
      groups_.push_back(level.group_size == group.size() || group.size() == 1
                            ? group
                            : group.split(group.rank() / level.group_size));
  }

 private:
  bool after_local_steps(int64_t n) override {
    const int level = due_level(levels_, n);
    if (level < 0) return world_.size() == 1;
    Group& group = groups_[static_cast<size_t>(level)];
    refuse_not_finite(group, tensors_);
    average_tensors(group, tensors_);
    return static_cast<size_t>(level) + 1 == levels_.size();
  }

  NamedTensors tensors_;
  Group world_;
  std::vector<AveragingLevel> levels_;
  std::vector<Group> groups_;
};

}  // namespace

std::unique_ptr<ModelAverager> average_hierarchically(NamedTensors parameters, Group group,
                                                      const std::vector<AveragingLevel>& levels,
                                                      int64_t start_step,
                                                      const NamedTensors& buffers) {
  const std::string fault = fault_of(levels, group.size());
  check<UsageError>(fault.empty(), "averaging of weights: {}", fault);
  check<UsageError>(start_step >= 0, "averaging of weights: start_step is {}", start_step);
  NamedTensors averaged = unique_tensors(parameters);
  check_averaged(averaged);
  for (const auto& [name, b] : unique_tensors(buffers, nullptr, averaged))
    if (b.is_floating_point()) averaged.emplace_back(name, b);
  return std::make_unique<Periodic>(std::move(averaged), std::move(group), levels, start_step);
}

std::unique_ptr<ModelAverager> average_periodically(NamedTensors parameters, Group group,
                                                    const PeriodicOptions& options,
                                                    const NamedTensors& buffers) {
  const int ranks = group.size();
  return average_hierarchically(std::move(parameters), std::move(group), {{ranks, options.period}},
                                options.start_step, buffers);
}

}  // namespace trireme
