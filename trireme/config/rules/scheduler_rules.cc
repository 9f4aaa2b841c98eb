// SPDX-License-Identifier: Apache-2.0
// Rules for a schedule's parameters, including which of them it requires.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/scheduler.h"
#include "trireme/config/sections/training.h"

namespace trireme {

void scheduler_rules(const Config& c, Findings& f) {
  const auto s = c.section<SchedulerSection>();
  auto at = [&](const char* path) {
    return fmt::format("{} ({})", *c.value_text(path), c.origin(path));
  };

  if (f.fine({"scheduler.params.cycle_momentum", "scheduler.type"}) && *s.cycle_momentum)
    f.complain("scheduler.params.cycle_momentum",
               "is true, the default of DeepSpeed and torch, but this version does not cycle "
               "momentum: set it to false");
  for (const char* path :
       {"scheduler.params.cycle_min_lr", "scheduler.params.cycle_max_lr",
        "scheduler.params.decay_num_steps", "scheduler.base_batch_size",
        "scheduler.params.step_size", "scheduler.params.milestones", "scheduler.params.T_max",
        "scheduler.params.T_0", "scheduler.params.max_lr", "scheduler.params.base_lr"})
    if (f.fine({path}) && !c.has(path))
      f.complain(path, "is required by the schedule and not given");
  if (f.fine({"scheduler.params.gamma", "scheduler.type"}) && s.type == "ExponentialLR" &&
      c.is_default("scheduler.params.gamma"))
    f.complain("scheduler.params.gamma", "is required by the schedule and not given");
  if (f.fine({"scheduler.params.milestones"}) && s.milestones) {
    const auto& milestones = *s.milestones;
    if (!std::is_sorted(milestones.begin(), milestones.end()) ||
        std::any_of(milestones.begin(), milestones.end(),
                    [](double m) { return m != std::floor(m); }))
      f.complain("scheduler.params.milestones", "must be increasing integers");
  }
  for (const char* path : {"scheduler.params.div_factor", "scheduler.params.final_div_factor"})
    if (f.fine({path}) && c.get_double(path) == 0) f.complain(path, "must be above 0");
  if (f.fine({"scheduler.params.total_steps", "training.steps"}) && *s.total_steps > 0 &&
      *s.total_steps < c.section<TrainingSection>().steps)
    f.complain("scheduler.params.total_steps",
               fmt::format("is less than training.steps {}: the cycle would end before the run",
                           at("training.steps")));
  if (f.fine({"scheduler.params.decay_lr_rate", "scheduler.params.decay_step_size"}) &&
      *s.decay_lr_rate > 0 && *s.decay_step_size == 0)
    f.complain("scheduler.params.decay_lr_rate",
               fmt::format("is {}, and scheduler.params.decay_step_size is 0, so nothing would "
                           "decay: set both or neither",
                           *s.decay_lr_rate));
  if (f.fine({"scheduler.params.power"}) && *s.power == 0)
    f.complain("scheduler.params.power", "must be above 0");

  if (f.fine({"scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr"}) &&
      *s.warmup_min_lr > *s.warmup_max_lr)
    f.complain("scheduler.params.warmup_min_lr",
               fmt::format("is above scheduler.params.warmup_max_lr {}",
                           at("scheduler.params.warmup_max_lr")));
}

}  // namespace trireme
