// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/scheduler.h"
#include "trireme/config/sections/training.h"

namespace trireme {

std::vector<std::string> deepspeed_surprises(const Config& c) {
  std::vector<std::string> notes;
  auto given = [&](const char* path) { return !c.is_default(path); };
  const auto optimizer = c.section<OptimizerSection>();
  if (given("optimizer.type") && optimizer.type == "Adam" && optimizer.adam_w_mode)
    notes.push_back(
        "optimizer.type Adam is AdamW, as in DeepSpeed: optimizer.params.adam_w_mode is true "
        "unless set to false");
  if (given("optimizer.type") && optimizer.type.starts_with("Adam") &&
      !given("optimizer.params.weight_decay"))
    notes.push_back(
        "optimizer.params.weight_decay is 0.0, as in DeepSpeed (torch.optim.AdamW has 0.01): "
        "nothing decays");
  if (optimizer.weight_decay > 0 && !given("optimizer.params.no_decay"))
    notes.push_back(
        "biases and norms do not decay (optimizer.params.no_decay); DeepSpeed decays every "
        "parameter unless the program makes groups; [] does so here");
  if (!given("gradient_clipping"))
    notes.push_back(
        "gradient_clipping is 1.0, the default since DeepSpeed 0.19 (before, it was 0, no "
        "clipping); 0 turns it off");
  if (!given("training.drop_last"))
    notes.push_back(
        "training.drop_last is true: the last samples of an epoch that do not fill a step are left "
        "out (DeepSpeed's dataloader_drop_last is false)");
  if (c.section<PrecisionSection>().bf16.enabled)
    notes.push_back(
        "bf16 adds the gradients of micro-batches in bfloat16; DeepSpeed without ZeRO also keeps a "
        "float32 sum, 4 more bytes per parameter");
  const auto scheduler = c.section<SchedulerSection>();
  const std::string& schedule = scheduler.type;
  if (schedule.starts_with("Warmup") && !given("scheduler.params.warmup_type"))
    notes.push_back(
        fmt::format("{} warms up logarithmically, as in DeepSpeed; the alternative is "
                    "scheduler.params.warmup_type \"linear\"",
                    schedule));
  if (schedule.starts_with("Warmup") && !given("scheduler.params.warmup_num_steps"))
    notes.push_back(fmt::format("{} warms up for 1000 steps, DeepSpeed's default", schedule));
  if (scheduler.warmup_max_lr && scheduler.warmup_max_lr != optimizer.lr)
    notes.push_back(fmt::format(
        "{} rises to scheduler.params.warmup_max_lr {} ({}), not to optimizer.params.lr {} ({})",
        schedule, *scheduler.warmup_max_lr, c.origin("scheduler.params.warmup_max_lr"),
        optimizer.lr, c.origin("optimizer.params.lr")));
  const int64_t warmup = scheduler.warmup_num_steps.value_or(0),
                steps = c.section<TrainingSection>().steps;
  if (steps > 0 && warmup >= steps)
    notes.push_back(
        fmt::format("the warm-up of {} steps does not end before training.steps {}: the full "
                    "learning rate is never used",
                    warmup, steps));
  return notes;
}

}  // namespace trireme
