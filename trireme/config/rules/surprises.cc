// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"

namespace trireme {

std::vector<std::string> deepspeed_surprises(const Config& c) {
  std::vector<std::string> notes;
  auto given = [&](const char* path) { return !c.is_default(path); };
  auto optimizer = c.get_string("optimizer.type");
  if (given("optimizer.type") && optimizer == "Adam" && c.get_bool("optimizer.params.adam_w_mode"))
    notes.push_back(
        "optimizer.type Adam is AdamW, as in DeepSpeed: optimizer.params.adam_w_mode is true "
        "unless it is "
        "set to false");
  if (given("optimizer.type") && optimizer.starts_with("Adam") &&
      !given("optimizer.params.weight_decay"))
    notes.push_back(
        "optimizer.params.weight_decay is 0.0, as in DeepSpeed (torch.optim.AdamW has 0.01): "
        "nothing decays");
  if (c.get_double("optimizer.params.weight_decay") > 0 && !given("optimizer.params.no_decay"))
    notes.push_back(
        "biases and norms do not decay (optimizer.params.no_decay); DeepSpeed decays every "
        "parameter unless "
        "the program makes groups, [] does the same here");
  if (!given("gradient_clipping"))
    notes.push_back(
        "gradient_clipping is 1.0, the default since DeepSpeed 0.19 (0, no clipping, before); 0 "
        "switches it off");
  if (!given("training.drop_last"))
    notes.push_back(
        "training.drop_last is true: the last samples of an epoch that do not fill a step are left "
        "out (DeepSpeed's dataloader_drop_last is false)");
  if (c.get_bool("bf16.enabled"))
    notes.push_back(
        "bf16 adds the gradients of micro-batches in bfloat16; DeepSpeed without ZeRO keeps a "
        "float32 sum beside them, 4 bytes a parameter more");
  auto schedule = c.get_string("scheduler.type");
  if (schedule.starts_with("Warmup") && !given("scheduler.params.warmup_type"))
    notes.push_back(
        fmt::format("{} warms up logarithmically, as in DeepSpeed; scheduler.params.warmup_type "
                    "\"linear\" is the other",
                    schedule));
  if (schedule.starts_with("Warmup") && !given("scheduler.params.warmup_num_steps"))
    notes.push_back(fmt::format("{} warms up for 1000 steps, DeepSpeed's default", schedule));
  if (c.applies("scheduler.params.warmup_max_lr") &&
      c.get_double("scheduler.params.warmup_max_lr") != c.get_double("optimizer.params.lr"))
    notes.push_back(fmt::format(
        "{} rises to scheduler.params.warmup_max_lr {} ({}), not to optimizer.params.lr {} ({})",
        schedule, c.get_double("scheduler.params.warmup_max_lr"),
        c.origin("scheduler.params.warmup_max_lr"), c.get_double("optimizer.params.lr"),
        c.origin("optimizer.params.lr")));
  int64_t warmup = c.get_int("scheduler.params.warmup_num_steps"),
          steps = c.get_int("training.steps");
  if (steps > 0 && warmup >= steps)
    notes.push_back(
        fmt::format("the warm-up of {} steps does not end before training.steps {}: the full "
                    "learning rate is never used",
                    warmup, steps));
  return notes;
}

}  // namespace trireme
