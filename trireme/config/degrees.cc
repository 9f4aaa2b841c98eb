// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/degrees.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme {
namespace {

std::string count_of_ranks(int64_t n) { return fmt::format("{} {}", n, n == 1 ? "rank" : "ranks"); }

/// "parallelism.pp 2 (a.json:1:5) × tp 3 (--set)": the factors that are not 1.
std::string factors(const DegreeInputs& given) {
  std::string text;
  const auto add = [&](const char* name, const DegreeInputs::Number& number, int64_t nothing) {
    if (number.value == nothing) return;
    text += fmt::format("{}{} {} ({})", text.empty() ? "parallelism." : " × ", name, number.value,
                        number.origin);
  };
  add("pp", given.pp, 1);
  add("dp", given.dp, 0);
  add("cp", given.cp, 1);
  add("tp", given.tp, 1);
  return text;
}

}  // namespace

Degrees solve_degrees(const DegreeInputs& given, int world) {
  const auto &dp = given.dp, &tp = given.tp, &pp = given.pp, &cp = given.cp;
  check<UsageError>(world >= 1, "parallelism needs at least one rank, got {}", world);
  // Each is at most a million.
  const int64_t wide = std::min<int64_t>(tp.value * pp.value, int64_t{1} << 40) * cp.value;
  const bool several = (tp.value > 1) + (pp.value > 1) + (cp.value > 1) > 1;
  if (wide <= world && world % wide == 0) {
    const int64_t left = world / wide;
    if (dp.value == 0 || dp.value == left)
      return {static_cast<int>(left), static_cast<int>(tp.value), static_cast<int>(pp.value),
              static_cast<int>(cp.value)};
  }
  if (wide == 1)
    fail<UsageError>("parallelism.dp is {} ({}), and there are {}: start {} or leave it out",
                     dp.value, dp.origin, count_of_ranks(world), dp.value);
  if (dp.value == 0)
    fail<UsageError>("{} {} divide {}: start a multiple of {} ranks, or change {}", factors(given),
                     several ? "do not" : "does not", count_of_ranks(world), wide,
                     several ? "one of them" : "it");
  fail<UsageError>("{} = {} ranks, and there are {}: start as many, or leave parallelism.dp out",
                   factors(given), std::min<int64_t>(wide, int64_t{1} << 40) * dp.value, world);
}

}  // namespace trireme
