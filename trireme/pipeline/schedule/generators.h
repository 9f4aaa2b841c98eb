// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/costs.h"
#include "trireme/pipeline/schedule/schedule.h"

// The schedules that there are. Each is a file of generators/: sizes in, what is computed out, in
// the order of its paper (and of torch.distributed.pipelining, where that has it).
namespace trireme::pipeline {

struct ScheduleSize {
  int ranks = 1;            // p
  int micro_batches = 1;    // m
  int stages_per_rank = 1;  // v
};

/// One row of the list. The texts are what `trireme plan schedule --list` and
/// docs/model_parallel.md say.
struct ScheduleKind {
  const char* name;
  Schedule (*generate)(const ScheduleSize&, const Costs&);
  int stages_per_rank;     // what v is unless somebody says it
  const char* conditions;  // on p, m and v
  const char* bubble;      // idle time of a rank, published
  const char* memory;      // stage inputs that rank 0 keeps at most, published
  const char* source;
};

TRIREME_API std::span<const ScheduleKind> schedule_kinds();

/// What is computed, without sends, receives and units. Throws UsageError in one sentence where
/// there is no schedule of that name, or its conditions on p, m and v do not hold.
/// `costs` matter to zb_2p alone, whose order depends on them.
TRIREME_API Schedule generate_schedule(const std::string& name, const ScheduleSize& size,
                                       const Costs& costs = {});

Schedule gpipe(const ScheduleSize& size);
Schedule one_forward_one_backward(const ScheduleSize& size);
Schedule interleaved(const ScheduleSize& size);
Schedule breadth_first(const ScheduleSize& size);
Schedule zb_h1(const ScheduleSize& size);
Schedule zb_h2(const ScheduleSize& size);
Schedule zb_2p(const ScheduleSize& size, const Costs& costs);
Schedule zb_v(const ScheduleSize& size);
Schedule dualpipe_v(const ScheduleSize& size);

}  // namespace trireme::pipeline
