// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/degrees.h"

#include "trireme/base/check.h"

namespace trireme {
namespace {

std::string count_of_ranks(int64_t n) { return fmt::format("{} {}", n, n == 1 ? "rank" : "ranks"); }

}  // namespace

Degrees solve_degrees(const DegreeInputs& given, int world) {
  const auto &dp = given.dp, &tp = given.tp;
  check<UsageError>(world >= 1, "parallelism needs at least one rank, got {}", world);
  if (tp.value > 1)
    check<UsageError>(tp.value <= world && world % tp.value == 0,
                      "parallelism.tp {} ({}) does not divide {}: use a divisor of {}, or start a "
                      "multiple of {} ranks",
                      tp.value, tp.origin, count_of_ranks(world), world, tp.value);
  Degrees d;
  d.tp = static_cast<int>(tp.value);
  d.dp = world / d.tp;
  if (dp.value == 0 || dp.value == d.dp) return d;
  if (d.model() == 1)
    fail<UsageError>("parallelism.dp is {} ({}), and there are {} ranks: start {} or leave it out",
                     dp.value, dp.origin, world, dp.value);
  fail<UsageError>(
      "parallelism.dp {} ({}) × tp {} ({}) = {}, and there are {} ranks: start {}, or leave "
      "parallelism.dp out",
      dp.value, dp.origin, tp.value, tp.origin, dp.value * tp.value, world, dp.value * tp.value);
}

}  // namespace trireme
