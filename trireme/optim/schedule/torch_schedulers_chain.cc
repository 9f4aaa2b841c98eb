// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/optim/schedule/torch_schedulers.h"

// Schedules made of schedules.
namespace trireme::lr_scheduler {
namespace {

ParamGroups common_groups(const char* type,
                          const std::vector<std::shared_ptr<Scheduler>>& schedulers) {
  check<UsageError>(!schedulers.empty(), "{}: no schedules were given", type);
  for (const auto& s : schedulers) {
    check<UsageError>(s != nullptr, "{}: a schedule is null", type);
    check<UsageError>(s->groups().same_as(schedulers[0]->groups()),
                      "{}: the schedules were not made from one ParamGroups: write ParamGroups "
                      "groups(optimizer); and pass `groups` to each of them",
                      type);
  }
  return schedulers[0]->groups();
}

std::string within(const std::string& prefix, size_t i) { return prefix + std::to_string(i) + "."; }

}  // namespace

ScheduleChain::ScheduleChain(const char* type, std::vector<std::shared_ptr<Scheduler>> schedulers)
    : Scheduler(type, common_groups(type, schedulers)), schedulers_(std::move(schedulers)) {}

std::vector<double> ScheduleChain::next_rates() { return now(); }

void ScheduleChain::visit(StateVisitor& visitor, const std::string& prefix) {
  Scheduler::visit(visitor, prefix);
  for (size_t i = 0; i < schedulers_.size(); ++i) schedulers_[i]->visit(visitor, within(prefix, i));
}

SequentialLR::SequentialLR(std::vector<std::shared_ptr<Scheduler>> schedulers,
                           std::vector<int64_t> milestones)
    : ScheduleChain("SequentialLR", std::move(schedulers)), milestones_(std::move(milestones)) {
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
  // Undo what their constructors set.
  for (size_t i = 0; i < groups_.size(); ++i) groups_.set_lr(i, groups_.initial_lr(i));
  for (const auto& s : schedulers_) s->last_epoch_ = -1;
  schedulers_[0]->step();
  last_epoch_ = 0;
  last_lr_ = schedulers_[0]->last_lr_;
}

size_t SequentialLR::active() const {
  return static_cast<size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_) -
                             milestones_.begin());
}

void SequentialLR::step() {
  ++last_epoch_;
  const size_t at = active();
  Scheduler& current = *schedulers_[at];
  if (at > 0 && milestones_[at - 1] == last_epoch_)
    current.restart();
  else
    current.step();
  last_lr_ = current.last_lr_;
}

void SequentialLR::loaded() { schedulers_[active()]->loaded(); }

ChainedScheduler::ChainedScheduler(std::vector<std::shared_ptr<Scheduler>> schedulers)
    : ScheduleChain("ChainedScheduler", std::move(schedulers)) {
  last_epoch_ = 0;  // each took its first step in its constructor
  last_lr_ = now();
}

void ChainedScheduler::step() {
  ++last_epoch_;
  for (const auto& s : schedulers_) s->step();
  last_lr_ = now();
}

void ChainedScheduler::loaded() {
  for (const auto& s : schedulers_) s->loaded();
}

}  // namespace trireme::lr_scheduler
