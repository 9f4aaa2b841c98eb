// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/save_schedule.h"

namespace trireme {

bool SaveSchedule::by_number(int64_t step) const {
  const auto divides = [step](int64_t every) { return every > 0 && step % every == 0; };
  return divides(rules_.every) || divides(rules_.every_too);
}

bool SaveSchedule::by_clock(double now) const {
  if (rules_.every_seconds > 0 && now + step_seconds_ - last_end_ >= rules_.every_seconds)
    return true;
  if (!rules_.automatic) return false;
  if (!cost_) return steps_ + 1 >= kFirstStep;
  return now - last_end_ >= kLeastSeconds && spent_ + *cost_ <= rules_.budget * (now + *cost_);
}

void SaveSchedule::step_done(double seconds) {
  ++steps_;
  step_seconds_ = seconds;
}

void SaveSchedule::saved(double now, double seconds) {
  last_end_ = now;
  spent_ += seconds;
  cost_ = seconds;
}

}  // namespace trireme
