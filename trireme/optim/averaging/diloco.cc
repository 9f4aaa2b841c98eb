// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/check.h"
#include "trireme/optim/averaging/averaging_checks.h"
#include "trireme/optim/averaging/model_averaging.h"
#include "trireme/tensor/storage_mark.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

class DiLoCo final : public ModelAverager {
 public:
  DiLoCo(NamedTensors parameters, Group group, const DiLoCoOptions& o, NamedTensors buffers)
      : ModelAverager(o.start_step),
        parameters_(std::move(parameters)),
        buffers_(std::move(buffers)),
        group_(std::move(group)),
        table_(parameters_),
        options_(o) {
    const auto like = parameters_.front().second.options().requires_grad(false);
    outer_ = at::zeros({table_.numel()}, like);
    momentum_ = at::zeros({table_.numel()}, like);
    way_ = group_.empty({table_.numel()}, like);
    begin();
    if (!options_.mean)
      options_.mean = [this](const at::Tensor& flat) {
        group_.all_reduce(flat, ReduceOp::avg).wait();
      };
  }

  void state(StateVisitor& visitor) override {
    ModelAverager::state(visitor);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      visitor.tensor("averaging.outer." + parameters_[i].first, place(outer_, i));
      visitor.tensor("averaging.momentum." + parameters_[i].first, place(momentum_, i));
    }
  }

 private:
  at::Tensor weights(size_t i) const { return parameters_[i].second.detach(); }
  at::Tensor place(const at::Tensor& flat, size_t i) const {
    return flat.narrow(0, table_[i].offset, table_[i].numel).view(table_[i].shape);
  }

  void begin() override {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) place(outer_, i).copy_(weights(i));
    marks_.clear();
    for (const auto& [name, p] : parameters_) marks_.emplace_back(p);
  }

  // outer_ is where ranks began, and is the same on all of them. What was loaded since is not to be
  // had any more: the optimizer has stepped on it.
  void refuse_replaced() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!marks_[i].moved(parameters_[i].second)) continue;
      const std::string why = fmt::format(
          "DiLoCo: parameter '{}' was exchanged (torch::load(), to(), set_data()) since the "
          "averager "
          "was made: make it again after that, on every rank",
          parameters_[i].first);
      group_.abort(fmt::format("rank {}: {}", group_.rank(), why));
      throw UsageError(why);
    }
  }

  bool after_local_steps(int64_t n) override {
    refuse_replaced();
    if (n % options_.period) return group_.size() == 1;
    at::NoGradGuard no_grad;
    refuse_not_finite(group_, parameters_);
    for (size_t i = 0; i < parameters_.size(); ++i)
      place(way_, i).copy_(place(outer_, i)).sub_(weights(i));
    options_.mean(way_);
    momentum_.mul_(options_.outer_momentum).add_(way_);
    if (options_.nesterov)
      outer_.sub_(way_.add_(momentum_, options_.outer_momentum), options_.outer_lr);
    else
      outer_.sub_(momentum_, options_.outer_lr);
    for (size_t i = 0; i < parameters_.size(); ++i) weights(i).copy_(place(outer_, i));
    average_tensors(group_, buffers_);
    return true;
  }

  NamedTensors parameters_, buffers_;
  std::vector<StorageMark> marks_;
  Group group_;
  ParameterTable table_;
  DiLoCoOptions options_;
  at::Tensor outer_, momentum_, way_;  // flat, in the table's order
};

NamedTensors floating(const NamedTensors& buffers, const NamedTensors& parameters) {
  NamedTensors list;
  for (const auto& [name, b] : unique_tensors(buffers, nullptr, parameters))
    if (b.is_floating_point()) list.emplace_back(name, b);
  return list;
}

}  // namespace

std::unique_ptr<ModelAverager> diloco(NamedTensors parameters, Group group, const DiLoCoOptions& o,
                                      const NamedTensors& buffers) {
  check<UsageError>(o.period >= 1 && o.start_step >= 0,
                    "DiLoCo: period {} and start_step {}: at least 1 and 0", o.period,
                    o.start_step);
  check<UsageError>(o.outer_lr > 0 && o.outer_momentum >= 0 && o.outer_momentum < 1,
                    "DiLoCo: outer_lr {} and outer_momentum {}: above 0, and in [0, 1)", o.outer_lr,
                    o.outer_momentum);
  parameters = unique_tensors(parameters);
  check_averaged(parameters);
  NamedTensors beside = floating(buffers, parameters);
  return std::make_unique<DiLoCo>(std::move(parameters), std::move(group), o, std::move(beside));
}

}  // namespace trireme
