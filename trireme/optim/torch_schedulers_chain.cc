// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/optim/torch_schedulers.h"

// Schedules made of schedules.
namespace trireme::lr_scheduler {
namespace {

ParamGroups common_groups(const char* type,
                          const std::vector<std::shared_ptr<Scheduler>>& schedulers) {
  check<UsageError>(!schedulers.empty(), "{}: no schedules were given", type);
  for (const auto& s : schedulers) {
    check<UsageError>(s != nullptr, "{}: a schedule is null", type);
    check<UsageError>(s->groups().same_as(schedulers[0]->groups()),
                      "{}: the schedules were not made of one ParamGroups: write ParamGroups "
                      "groups(optimizer); and give each of them `groups`",
                      type);
  }
  return schedulers[0]->groups();
}

std::string within(const std::string& prefix, size_t i) { return prefix + std::to_string(i) + "."; }

}  // namespace

SequentialLR::SequentialLR(std::vector<std::shared_ptr<Scheduler>> schedulers,
                           std::vector<int64_t> milestones)
    : Scheduler("SequentialLR", common_groups("SequentialLR", schedulers)),
      schedulers_(std::move(schedulers)),
      milestones_(std::move(milestones)) {
  check<UsageError>(milestones_.size() + 1 == schedulers_.size(),
                    "SequentialLR: {} schedules need {} milestones, {} were given",
                    schedulers_.size(), schedulers_.size() - 1, milestones_.size());
  check<UsageError>(std::is_sorted(milestones_.begin(), milestones_.end()),
                    "SequentialLR: the milestones must increase");
  for (const auto& s : schedulers_)
    check<UsageError>(!s->is_chain(),
                      "SequentialLR: a {} cannot be one of its schedules, as in torch: put the "
                      "SequentialLR into a ChainedScheduler",
                      s->type_);
  // What their constructors set is taken back.
  for (size_t i = 0; i < groups_.size(); ++i) groups_.set_lr(i, groups_.initial_lr(i));
  for (const auto& s : schedulers_) s->last_epoch_ = -1;
  schedulers_[0]->step();
  last_epoch_ = 0;
  last_lr_ = schedulers_[0]->last_lr_;
}

void SequentialLR::step() {
  ++last_epoch_;
  const auto at = static_cast<size_t>(
      std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_) - milestones_.begin());
  Scheduler& active = *schedulers_[at];
  if (at > 0 && milestones_[at - 1] == last_epoch_)
    active.restart();
  else
    active.step();
  last_lr_ = active.last_lr_;
}

std::vector<double> SequentialLR::next_rates() { return now(); }

void SequentialLR::visit(StateVisitor& visitor, const std::string& prefix) {
  Scheduler::visit(visitor, prefix);
  for (size_t i = 0; i < schedulers_.size(); ++i) schedulers_[i]->visit(visitor, within(prefix, i));
}

void SequentialLR::loaded() {
  const auto at = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
  schedulers_[static_cast<size_t>(at - milestones_.begin())]->loaded();
}

ChainedScheduler::ChainedScheduler(std::vector<std::shared_ptr<Scheduler>> schedulers)
    : Scheduler("ChainedScheduler", common_groups("ChainedScheduler", schedulers)),
      schedulers_(std::move(schedulers)) {
  last_epoch_ = 0;  // each has taken its first step when it was made
  last_lr_ = now();
}

void ChainedScheduler::step() {
  ++last_epoch_;
  for (const auto& s : schedulers_) s->step();
  last_lr_ = now();
}

std::vector<double> ChainedScheduler::next_rates() { return now(); }

void ChainedScheduler::visit(StateVisitor& visitor, const std::string& prefix) {
  Scheduler::visit(visitor, prefix);
  for (size_t i = 0; i < schedulers_.size(); ++i) schedulers_[i]->visit(visitor, within(prefix, i));
}

void ChainedScheduler::loaded() {
  for (const auto& s : schedulers_) s->loaded();
}

}  // namespace trireme::lr_scheduler
