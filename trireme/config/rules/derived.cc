// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/rules/derived.h"

#include <algorithm>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/data.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/scheduler.h"
#include "trireme/config/sections/training.h"

namespace trireme {

void Derived::set(std::string_view path, Value value) {
  config_.derived_.insert_or_assign(std::string(path), std::move(value));
}

void Derived::set(std::string_view path, Value value, std::initializer_list<const char*> from) {
  int latest = 0;
  for (const char* key : from) latest = std::max(latest, config_.level_of(key));
  levels_.insert_or_assign(std::string(path), latest);
  set(path, std::move(value));
}

int Derived::level_of(std::string_view path) const {
  const auto it = levels_.find(path);
  return std::max(config_.level_of(path), it == levels_.end() ? 0 : it->second);
}

void derive_values(const Config& config, Derived& derived) {
  auto given = [&](const char* path) { return !config.is_default(path); };

  if (!given("training.steps") && config.section<TrainingSection>().epochs == 0)
    derived.set("training.steps", Value::of(int64_t{1000}));

  if (config.section<DataSection>().type == "auto") {
    const bool gpt = config.section<ModelSection>().type == "gpt";
    const char* type = gpt ? "corpus" : given("data.path") ? "mnist" : "digits";
    derived.set("data.type", Value::of(std::string(type)),
                {"data.type", "model.type", "data.path"});
  }

  if (config.section<DataSection>().type == "dummy" && !given("data.train_samples"))
    derived.set("data.train_samples", Value::of(int64_t{0}));

  auto schedule = config.section<SchedulerSection>().type;
  if (!schedule.starts_with("Warmup") && !given("scheduler.params.warmup_num_steps"))
    derived.set("scheduler.params.warmup_num_steps", Value::of(int64_t{0}));
  if (schedule == "inverse_sqrt" && !given("scheduler.params.min_lr_ratio"))
    derived.set("scheduler.params.min_lr_ratio", Value::of(0.0));
  if (!given("scheduler.params.warmup_max_lr")) {
    if (schedule == "WarmupLR")
      derived.set("scheduler.params.warmup_max_lr",
                  Value::of(config.section<OptimizerSection>().lr));
    if (schedule == "WarmupDecayLR")
      derived.set("scheduler.params.warmup_max_lr", Value::of(0.001));
  }
  if (schedule == "CyclicLR" && !given("scheduler.params.gamma"))
    derived.set("scheduler.params.gamma", Value::of(1.0));
  auto list = [](std::initializer_list<double> numbers) {
    Value value;
    value.kind = Value::Kind::array;
    for (double number : numbers) value.array.push_back(Value::of(number));
    return value;
  };
  auto optimizer = config.section<OptimizerSection>().type;
  if (optimizer == "Lion" && !given("optimizer.params.betas"))
    derived.set("optimizer.params.betas", list({0.9, 0.99}));
  if (optimizer == "Lars" && !given("optimizer.params.momentum"))
    derived.set("optimizer.params.momentum", Value::of(0.9));
  if (optimizer == "Adagrad" && !given("optimizer.params.eps"))
    derived.set("optimizer.params.eps", Value::of(1e-10));
  if (optimizer == "Lamb" && !given("optimizer.params.no_adapt"))
    derived.set("optimizer.params.no_adapt", list({}));
  int64_t steps = config.section<TrainingSection>().steps;
  const auto scheduler = config.section<SchedulerSection>();
  if (scheduler.total_num_steps == 0 && steps > 0)
    derived.set("scheduler.params.total_num_steps", Value::of(steps));
  if (scheduler.total_steps == 0 && steps > 0)
    derived.set("scheduler.params.total_steps", Value::of(steps));
}

}  // namespace trireme
