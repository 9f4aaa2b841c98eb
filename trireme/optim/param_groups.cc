// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/param_groups.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>

#include "trireme/base/check.h"

namespace trireme::lr_scheduler {
namespace {

template <class Options>
bool set_beta1(torch::optim::OptimizerOptions& options, double beta1) {
  auto* adam = dynamic_cast<Options*>(&options);
  if (adam) adam->betas(std::make_tuple(beta1, std::get<1>(adam->betas())));
  return adam != nullptr;
}

template <class Options>
bool set_plain(torch::optim::OptimizerOptions& options, double momentum) {
  auto* found = dynamic_cast<Options*>(&options);
  if (found) found->momentum(momentum);
  return found != nullptr;
}

bool cycles_momentum(const torch::optim::OptimizerOptions& options) {
  return dynamic_cast<const torch::optim::SGDOptions*>(&options) ||
         dynamic_cast<const torch::optim::RMSpropOptions*>(&options) ||
         dynamic_cast<const torch::optim::AdamOptions*>(&options) ||
         dynamic_cast<const torch::optim::AdamWOptions*>(&options);
}

}  // namespace

struct ParamGroups::Impl {
  torch::optim::Optimizer* optimizer = nullptr;  // null: the rates are here
  std::vector<double> lrs, initial;
  bool remembered = false;

  torch::optim::OptimizerOptions& options(size_t group) const {
    auto& groups = optimizer->param_groups();
    check<UsageError>(groups.size() == initial.size(),
                      "learning-rate schedule: the optimizer has {} parameter groups, {} when its "
                      "schedule was made: add groups before the schedule",
                      groups.size(), initial.size());
    return groups.at(group).options();
  }
};

ParamGroups::ParamGroups(torch::optim::Optimizer& optimizer) : impl_(std::make_shared<Impl>()) {
  impl_->optimizer = &optimizer;
  for (auto& group : optimizer.param_groups()) impl_->initial.push_back(group.options().get_lr());
  check<UsageError>(!impl_->initial.empty(),
                    "learning-rate schedule: the optimizer has no parameter groups");
}

ParamGroups::ParamGroups(double lr) : ParamGroups(std::vector<double>{lr}) {}

ParamGroups::ParamGroups(const std::vector<double>& lrs) : impl_(std::make_shared<Impl>()) {
  check<UsageError>(!lrs.empty(), "learning-rate schedule: no rates were given");
  impl_->lrs = impl_->initial = lrs;
}

size_t ParamGroups::size() const { return impl_->initial.size(); }

double ParamGroups::lr(size_t group) const {
  return impl_->optimizer ? impl_->options(group).get_lr() : impl_->lrs.at(group);
}

void ParamGroups::set_lr(size_t group, double lr) {
  if (impl_->optimizer)
    impl_->options(group).set_lr(lr);
  else
    impl_->lrs.at(group) = lr;
}

double ParamGroups::initial_lr(size_t group) const { return impl_->initial.at(group); }

void ParamGroups::set_initial_lr(const std::vector<double>& lrs) {
  check<UsageError>(lrs.size() == size(), "learning-rate schedule: {} initial rates for {} groups",
                    lrs.size(), size());
  impl_->initial = lrs;
  impl_->remembered = true;
}

void ParamGroups::remember_initial_lr() {
  if (impl_->remembered) return;
  for (size_t i = 0; i < size(); ++i) impl_->initial[i] = lr(i);
  impl_->remembered = true;
}

bool ParamGroups::has_momentum() const {
  if (!impl_->optimizer) return false;
  for (size_t i = 0; i < size(); ++i)
    if (!cycles_momentum(impl_->options(i))) return false;
  return true;
}

void ParamGroups::set_momentum(size_t group, double momentum) {
  using namespace torch::optim;
  check<UsageError>(
      impl_->optimizer != nullptr,
      "learning-rate schedule: momentum can be set only in the groups of a torch::optim optimizer");
  OptimizerOptions& options = impl_->options(group);
  check<UsageError>(set_plain<SGDOptions>(options, momentum) ||
                        set_plain<RMSpropOptions>(options, momentum) ||
                        set_beta1<torch::optim::AdamOptions>(options, momentum) ||
                        set_beta1<torch::optim::AdamWOptions>(options, momentum),
                    "learning-rate schedule: this optimizer has no momentum to set");
}

}  // namespace trireme::lr_scheduler
