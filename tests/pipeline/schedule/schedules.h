// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/pipeline/schedule/generators.h"

namespace trireme::pipeline::testing {

/// Every schedule for p ≤ 8, m ≤ 16, v ≤ 4 whose conditions hold. Returns how many there were.
inline int for_all_schedules(
    const std::function<void(const Schedule&, const ScheduleSize&)>& body) {
  int seen = 0;
  for (const ScheduleKind& kind : schedule_kinds())
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 16; ++m)
        for (int v = 1; v <= 4; ++v) {
          Schedule schedule;
          try {
            schedule = generate_schedule(kind.name, {p, m, v});
          } catch (const UsageError&) {
            continue;  // its conditions do not hold: tested in generators_test.cc
          }
          ++seen;
          body(schedule, {p, m, v});
        }
  return seen;
}

inline std::string described(const Schedule& s, const ScheduleSize& size) {
  return s.name + " p=" + std::to_string(size.ranks) + " m=" + std::to_string(size.micro_batches) +
         " v=" + std::to_string(size.stages_per_rank);
}

}  // namespace trireme::pipeline::testing
