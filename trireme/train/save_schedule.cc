// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/save_schedule.h"

#include <algorithm>

namespace trireme {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool SaveSchedule::by_number(int64_t step) const {
  const auto divides = [step](int64_t every) { return every > 0 && step % every == 0; };
  return divides(rules_.every) || divides(rules_.every_too);
}

bool SaveSchedule::by_clock(double now) const {
  if (rules_.every_seconds > 0 && now + step_seconds_ - last_ >= rules_.every_seconds) return true;
  if (!rules_.automatic || under_way_) return false;
  if (!cost_) return steps_ + 1 >= kFirstStep;
  const double cost = *cost_ + std::max(slows_.value_or(0), 0.0);
  return now - calm_since_ >= kLeastSeconds &&
         spent_ + std::max(slowed_, 0.0) + cost <= rules_.budget * (now + cost);
}

void SaveSchedule::step_done(double seconds) {
  ++steps_;
  step_seconds_ = seconds;
  if (under_way_) {
    ++steps_beside_;
    if (beside_.size() < kMostBeside) beside_.push_back(seconds);
    return;
  }
  if (calm_.size() < kCalmSteps) calm_.resize(calm_.size() + 1);
  calm_[turn_++ % kCalmSteps] = seconds;
}

void SaveSchedule::saved(double now, double seconds, bool under_way) {
  last_ = calm_since_ = now;
  spent_ += seconds;
  cost_ = seconds;
  under_way_ = under_way;
}

void SaveSchedule::written(double now) {
  // Steps differ by themselves, so a save may seem to have made them faster: only the sum of many
  // saves tells, and what the next one takes is a mean of the last ones.
  if (!beside_.empty() && !calm_.empty()) {
    const double longer = (median(beside_) - median(calm_)) * static_cast<double>(steps_beside_);
    slowed_ += longer;
    slows_ = slows_ ? (*slows_ + longer) / 2 : longer;
  }
  beside_.clear();
  steps_beside_ = 0;
  calm_since_ = now;
  under_way_ = false;
}

}  // namespace trireme
