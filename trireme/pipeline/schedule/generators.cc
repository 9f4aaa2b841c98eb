// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/generators.h"

#include <iterator>

#include "trireme/base/check.h"

namespace trireme::pipeline {
namespace {

/// For the row of an order that does not depend on costs.
template <Schedule (*generate)(const ScheduleSize&)>
Schedule at_any_cost(const ScheduleSize& size, const Costs&) {
  return generate(size);
}

const ScheduleKind kKinds[] = {
    {"gpipe", at_any_cost<gpipe>, 1, "v = 1", "(p-1)(F+B)", "m", "GPipe, arXiv:1811.06965"},
    {"1f1b", at_any_cost<one_forward_one_backward>, 1, "v = 1", "(p-1)(F+B)", "p",
     "PipeDream-Flush, arXiv:2006.09503"},
    {"interleaved_1f1b", at_any_cost<interleaved>, 2,
     "v >= 2, m < 2p or a multiple of m / p rounded down", "(p-1)(F+B)", "pv+p-1",
     "Megatron-LM, arXiv:2104.04473"},
    {"breadth_first", at_any_cost<breadth_first>, 2, "none", "(p-1)(F+B)", "mv",
     "Breadth-First Pipeline Parallelism, arXiv:2211.05953"},
    {"zb_h1", at_any_cost<zb_h1>, 1, "v = 1", "(p-1)(F+I-W)", "p", "Zero Bubble, arXiv:2401.10241"},
    {"zb_h2", at_any_cost<zb_h2>, 1, "v = 1, m >= 2p-1", "(p-1)(F+I-2W)", "2p-1",
     "Zero Bubble, arXiv:2401.10241"},
    {"zb_2p", zb_2p, 1, "v = 1", "about 0", "2p", "Zero Bubble, arXiv:2401.10241, section 3"},
    {"zb_v", at_any_cost<zb_v>, 2, "v = 2", "0 where F = I = W", "2p",
     "Zero Bubble, arXiv:2401.10241, section 6"},
    {"dualpipe_v", at_any_cost<dualpipe_v>, 2, "v = 2, m >= 2p", "(p-1)(F+2B-3W)", "2p+1",
     "DualPipeV, DeepSeek-V3, arXiv:2412.19437"},
};

void check_size(const ScheduleSize& size) {
  const auto within = [](const char* what, int value, int most) {
    check<UsageError>(value >= 1 && value <= most, "{} {}: choose 1 to {}", value, what, most);
  };
  within("ranks", size.ranks, kMostRanks);
  within("micro-batches", size.micro_batches, kMostMicroBatches);
  within("stages per rank", size.stages_per_rank, kMostStages / kMostRanks * 8);
  const long stages = static_cast<long>(size.ranks) * size.stages_per_rank;
  check<UsageError>(stages <= kMostStages, "{} stages: choose at most {}", stages, kMostStages);
  check<UsageError>(stages * size.micro_batches <= kMostCells,
                    "{} stages times {} micro-batches are more than the {} that a schedule may "
                    "have: choose fewer micro-batches",
                    stages, size.micro_batches, kMostCells);
}

}  // namespace

std::span<const ScheduleKind> schedule_kinds() { return kKinds; }

Schedule generate_schedule(const std::string& name, const ScheduleSize& size, const Costs& costs) {
  for (const ScheduleKind& kind : kKinds) {
    if (name != kind.name) continue;
    check_size(size);
    check_costs(size.ranks * size.stages_per_rank, costs);
    Schedule schedule = kind.generate(size, costs);
    schedule.name = name;
    return schedule;
  }
  std::string names;
  for (const ScheduleKind& kind : kKinds)
    names += std::string(names.empty() ? "" : ", ") + kind.name;
  fail<UsageError>("there is no pipeline schedule '{}': choose one of {}", name, names);
}

}  // namespace trireme::pipeline
