// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/position.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme {

void DataOrigin::check_possible() const {
  constexpr int64_t kMost = int64_t{1} << 53;  // sums of such numbers do not overflow
  for (const int64_t n : {step, at.epoch, at.sample, number})
    check<Corrupt>(n >= 0 && n <= kMost,
                   "step {} at sample {} of epoch {} (number {}) is no place in any data", step,
                   at.sample, at.epoch, number);
}

StepPositions::StepPositions(int64_t size, int64_t per_step, bool drop_last,
                             const DataOrigin& origin)
    : size_(size), per_step_(per_step), drop_last_(drop_last), origin_(origin) {
  origin.check_possible();
  // An origin behind the end is at the end: a run whose data differs is refused elsewhere.
  steps_in_first_ = steps_in(std::max<int64_t>(0, size - origin.at.sample));
}

Position StepPositions::of(int64_t step) const {
  check<UsageError>(step >= origin_.step, "step {} lies before step {}, where the data begins",
                    step, origin_.step);
  const int64_t k = step - origin_.step;
  if (k < steps_in_first_) return {origin_.at.epoch, origin_.at.sample + k * per_step_};
  const int64_t later = k - steps_in_first_, each = steps_per_epoch();
  return {origin_.at.epoch + 1 + later / each, later % each * per_step_};
}

DataOrigin StepPositions::origin_at(int64_t step) const {
  return {step, of(step), origin_.number + (step - origin_.step) * per_step_};
}

int64_t StepPositions::first_step_of(int64_t epoch) const {
  if (epoch <= origin_.at.epoch) return origin_.step;
  return origin_.step + steps_in_first_ + (epoch - origin_.at.epoch - 1) * steps_per_epoch();
}

}  // namespace trireme
