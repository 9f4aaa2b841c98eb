// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/costs.h"

#include <cmath>

#include "trireme/base/check.h"

namespace trireme::pipeline {

void check_costs(int stages, const Costs& costs) {
  check<UsageError>(
      costs.stages.size() == 1 || costs.stages.size() == static_cast<size_t>(stages),
      "costs of {} stages were given, and there are {}: give one for all, or one each",
      costs.stages.size(), stages);
  const auto good = [](double t) { return std::isfinite(t) && t >= 0 && t <= 1e12; };
  for (const StageCost& c : costs.stages)
    check<UsageError>(good(c.forward) && good(c.input_gradient) && good(c.weight_gradient) &&
                          c.forward + c.input_gradient + c.weight_gradient > 0,
                      "costs {}, {}, {}: give three times, none negative and not all 0", c.forward,
                      c.input_gradient, c.weight_gradient);
  check<UsageError>(good(costs.transfer), "a transfer of {}: give a time that is not negative",
                    costs.transfer);
}

}  // namespace trireme::pipeline
