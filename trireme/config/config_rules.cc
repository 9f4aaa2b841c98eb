// SPDX-License-Identifier: Apache-2.0
// What keys mean together: defaults that follow from other values, and values that exclude each
// other.
#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/config/config_loader.h"

namespace trireme {

void ConfigLoader::derive() {
  auto& derived = config_.derived_;
  auto given = [&](const char* path) { return !config_.is_default(path); };

  if (!given("training.steps") && config_.get_int("training.epochs") == 0)
    derived["training.steps"] = Value::of(int64_t{1000});

  if (config_.get_string("data.type") == "auto") {
    bool gpt = config_.get_string("model.type") == "gpt";
    derived["data.type"] = Value::of(std::string(gpt                  ? "corpus"
                                                 : given("data.path") ? "mnist"
                                                                      : "digits"));
    // As late as what it follows from: keys of another type of data in an earlier file then give
    // way.
    derived_level_["data.type"] =
        std::max({config_.level_of("data.type"), config_.level_of("model.type"),
                  config_.level_of("data.path")});
  }

  if (config_.get_string("data.type") == "dummy" && !given("data.train_samples"))
    derived["data.train_samples"] = Value::of(int64_t{0});

  auto schedule = config_.get_string("scheduler.type");
  if (!schedule.starts_with("Warmup") && !given("scheduler.params.warmup_num_steps"))
    derived["scheduler.params.warmup_num_steps"] = Value::of(int64_t{0});
  if (schedule == "inverse_sqrt" && !given("scheduler.params.min_lr_ratio"))
    derived["scheduler.params.min_lr_ratio"] = Value::of(0.0);
  if (!given("scheduler.params.warmup_max_lr")) {
    if (schedule == "WarmupLR")
      derived["scheduler.params.warmup_max_lr"] =
          Value::of(config_.get_double("optimizer.params.lr"));
    if (schedule == "WarmupDecayLR") derived["scheduler.params.warmup_max_lr"] = Value::of(0.001);
  }
  if (schedule == "CyclicLR" && !given("scheduler.params.gamma"))
    derived["scheduler.params.gamma"] = Value::of(1.0);
  auto list = [](std::initializer_list<double> numbers) {
    Value value;
    value.kind = Value::Kind::array;
    for (double number : numbers) value.array.push_back(Value::of(number));
    return value;
  };
  auto optimizer = config_.get_string("optimizer.type");
  if (optimizer == "Lion" && !given("optimizer.params.betas"))
    derived["optimizer.params.betas"] = list({0.9, 0.99});
  if (optimizer == "Lars" && !given("optimizer.params.momentum"))
    derived["optimizer.params.momentum"] = Value::of(0.9);
  if (optimizer == "Adagrad" && !given("optimizer.params.eps"))
    derived["optimizer.params.eps"] = Value::of(1e-10);
  if (optimizer == "Lamb" && !given("optimizer.params.no_adapt"))
    derived["optimizer.params.no_adapt"] = list({});
  int64_t steps = config_.get_int("training.steps");
  if (config_.applies("scheduler.params.total_num_steps") &&
      config_.get_int("scheduler.params.total_num_steps") == 0 && steps > 0)
    derived["scheduler.params.total_num_steps"] = Value::of(steps);
  if (config_.applies("scheduler.params.total_steps") &&
      config_.get_int("scheduler.params.total_steps") == 0 && steps > 0)
    derived["scheduler.params.total_steps"] = Value::of(steps);
}

void ConfigLoader::check_together() {
  const Config& c = config_;
  // A value that is wrong by itself was reported; its default says nothing about the user's intent.
  auto fine = [&](std::initializer_list<const char*> paths) {
    for (const char* path : paths)
      if (broken(path) || !c.applies(path)) return false;
    return true;
  };
  auto at = [&](const char* path) {
    return fmt::format("{} ({})", c.lookup(path)->text(), c.origin(path));
  };

  if (fine({"training.steps", "training.epochs"}) && c.get_int("training.steps") == 0 &&
      c.get_int("training.epochs") == 0)
    complain("training.steps",
             "is 0 and nothing else ends the training: set training.steps or training.epochs");

  if (fine({"data.type", "model.type"})) {
    auto data = c.get_string("data.type"), model = c.get_string("model.type");
    bool text_model = model == "gpt";
    if (data != "dummy" && text_model != (data == "corpus" || data == "documents"))
      complain("data.type",
               fmt::format("{} does not feed model.type {}: it takes {}", json_quote(data),
                           at("model.type"),
                           text_model ? "corpus, documents or dummy" : "mnist, digits or dummy"));
    else if (data == "mnist" && !c.has("data.path"))
      complain("data.type", "\"mnist\" needs data.path, the folder with the IDX files");
    else if (data != "dummy" && model == "mlp" && fine({"model.inputs"}) &&
             c.get_int("model.inputs") != 784)
      complain("model.inputs", fmt::format("must be 784 for data.type {}, whose images are 28×28",
                                           at("data.type")));
    else if (data != "dummy" && model == "mlp" && fine({"model.outputs"}) &&
             c.get_int("model.outputs") < 10)
      complain("model.outputs",
               fmt::format("must be at least 10 for data.type {}, the digits", at("data.type")));
  }
  if (fine({"data.train_samples", "data.type"}) && c.get_int("data.train_samples") == 0 &&
      c.get_string("data.type") != "dummy")
    complain("data.train_samples",
             fmt::format("is 0, which only data.type dummy can be: {} are so many at least as a "
                         "step has",
                         at("data.type")));
  if (fine({"data.paths"}) && c.get_string_list("data.paths").empty())
    complain("data.paths", "is empty: name files, folders or globs of the corpus");

  if (fine({"model.width", "model.heads"}) &&
      c.get_int("model.width") % c.get_int("model.heads") != 0) {
    if (c.is_default("model.width"))
      complain("model.heads", fmt::format("{} does not divide model.width {}",
                                          c.get_int("model.heads"), at("model.width")));
    else
      complain("model.width", fmt::format("{} does not divide by model.heads {}",
                                          c.get_int("model.width"), at("model.heads")));
  }

  if (fine({"optimizer.params.betas"})) {
    auto betas = c.get_double_list("optimizer.params.betas");
    if (betas.size() != 2 || betas[0] >= 1 || betas[1] >= 1)
      complain("optimizer.params.betas", "needs two numbers below 1, such as [0.9, 0.999]");
  }
  if (fine({"optimizer.params.nesterov", "optimizer.params.momentum"}) &&
      c.get_bool("optimizer.params.nesterov") && c.get_double("optimizer.params.momentum") == 0)
    complain("optimizer.params.nesterov", "needs optimizer.params.momentum above 0");
  if (fine({"optimizer.params.nesterov", "optimizer.params.dampening"}) &&
      c.get_bool("optimizer.params.nesterov") && c.get_double("optimizer.params.dampening") != 0)
    complain("optimizer.params.nesterov", "needs optimizer.params.dampening 0");
  if (fine({"optimizer.params.dampening", "optimizer.params.momentum"}) &&
      c.get_double("optimizer.params.dampening") != 0 &&
      c.get_double("optimizer.params.momentum") == 0)
    complain("optimizer.params.dampening", "has no effect without optimizer.params.momentum");
  if (fine({"optimizer.params.adam_w_mode", "optimizer.type"}) &&
      c.get_string("optimizer.type") == "AdamW" && !c.get_bool("optimizer.params.adam_w_mode"))
    complain("optimizer.params.adam_w_mode",
             "is false, and optimizer.type is AdamW: Adam with false is plain Adam");

  if (fine({"optimizer.params.min_coeff", "optimizer.params.max_coeff"}) &&
      c.get_double("optimizer.params.min_coeff") > c.get_double("optimizer.params.max_coeff"))
    complain("optimizer.params.min_coeff", fmt::format("is above optimizer.params.max_coeff {}",
                                                       at("optimizer.params.max_coeff")));
  if (fine({"optimizer.params.trust_coefficient"}) &&
      c.get_double("optimizer.params.trust_coefficient") == 0)
    complain("optimizer.params.trust_coefficient", "must be above 0: nothing would move");
  for (const char* path :
       {"optimizer.params.beta2_decay", "optimizer.params.eps1", "optimizer.params.d"})
    if (fine({path}) && c.get_double(path) == 0) complain(path, "must not be 0");
  if (fine({"optimizer.params.alpha"}) && c.get_double("optimizer.params.alpha") >= 1)
    complain("optimizer.params.alpha", "must be below 1");

  if (fine({"scheduler.params.cycle_momentum", "scheduler.type"}) &&
      c.get_bool("scheduler.params.cycle_momentum"))
    complain(
        "scheduler.params.cycle_momentum",
        "is true, as in DeepSpeed and torch when it is not given: momentum is not cycled in this "
        "version, set it to false");
  for (const char* path :
       {"scheduler.params.cycle_min_lr", "scheduler.params.cycle_max_lr",
        "scheduler.params.decay_num_steps", "scheduler.base_batch_size",
        "scheduler.params.step_size", "scheduler.params.milestones", "scheduler.params.T_max",
        "scheduler.params.T_0", "scheduler.params.max_lr", "scheduler.params.base_lr"})
    if (fine({path}) && !c.has(path)) complain(path, "is not given, and the schedule needs it");
  if (fine({"scheduler.params.gamma", "scheduler.type"}) &&
      c.get_string("scheduler.type") == "ExponentialLR" && c.is_default("scheduler.params.gamma"))
    complain("scheduler.params.gamma", "is not given, and the schedule needs it");
  if (fine({"scheduler.params.milestones"}) && c.has("scheduler.params.milestones")) {
    const auto milestones = c.get_double_list("scheduler.params.milestones");
    if (!std::is_sorted(milestones.begin(), milestones.end()) ||
        std::any_of(milestones.begin(), milestones.end(),
                    [](double m) { return m != std::floor(m); }))
      complain("scheduler.params.milestones", "must be whole numbers that increase");
  }
  for (const char* path : {"scheduler.params.div_factor", "scheduler.params.final_div_factor"})
    if (fine({path}) && c.get_double(path) == 0) complain(path, "must be above 0");
  if (fine({"scheduler.params.total_steps", "training.steps"}) &&
      c.get_int("scheduler.params.total_steps") > 0 &&
      c.get_int("scheduler.params.total_steps") < c.get_int("training.steps"))
    complain("scheduler.params.total_steps",
             fmt::format("is less than training.steps {}: the cycle would end before the run",
                         at("training.steps")));
  if (fine({"scheduler.params.decay_lr_rate", "scheduler.params.decay_step_size"}) &&
      c.get_double("scheduler.params.decay_lr_rate") > 0 &&
      c.get_int("scheduler.params.decay_step_size") == 0)
    complain("scheduler.params.decay_lr_rate",
             fmt::format("is {}, and scheduler.params.decay_step_size 0: nothing would decay, set "
                         "both or none",
                         c.get_double("scheduler.params.decay_lr_rate")));
  if (fine({"scheduler.params.power"}) && c.get_double("scheduler.params.power") == 0)
    complain("scheduler.params.power", "must be above 0");

  if (fine({"scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr"}) &&
      c.get_double("scheduler.params.warmup_min_lr") >
          c.get_double("scheduler.params.warmup_max_lr"))
    complain("scheduler.params.warmup_min_lr",
             fmt::format("is above scheduler.params.warmup_max_lr {}",
                         at("scheduler.params.warmup_max_lr")));

  if (fine({"training.leaves"})) {
    auto leaves = c.get_int("training.leaves");
    if (leaves & (leaves - 1))
      complain("training.leaves", fmt::format("must be a power of two, found {}", leaves));
  }
}

}  // namespace trireme
