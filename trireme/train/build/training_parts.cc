// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/training_parts.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/tune_buckets.h"
#include "trireme/train/gradients/gradient_noise.h"

namespace trireme {
namespace {

std::vector<OptionGroup> no_decay_groups(const Config& c, const TiedNames& tied) {
  std::vector<OptionGroup> groups;
  for (const auto& pattern : with_first_names(c.get_string_list("optimizer.params.no_decay"), tied))
    groups.push_back({pattern, 0.0, 1});
  return groups;
}

std::unique_ptr<Optimizer> build_optimizer(const Config& c, const NamedTensors& parameters,
                                           const std::shared_ptr<const NormParts>& parts,
                                           const TiedNames& tied) {
  const std::string type = c.get_string("optimizer.type");
  const auto groups = no_decay_groups(c, tied);
  auto number = [&](const char* name) {
    return c.get_double(std::string("optimizer.params.") + name);
  };
  auto flag = [&](const char* name) { return c.get_bool(std::string("optimizer.params.") + name); };
  const double decay = number("weight_decay");
  std::vector<double> betas{0, 0};
  if (c.applies("optimizer.params.betas")) betas = c.get_double_list("optimizer.params.betas");
  std::vector<std::string> no_adapt;
  if (c.applies("optimizer.params.no_adapt"))
    no_adapt = with_first_names(c.get_string_list("optimizer.params.no_adapt"), tied);

  if (type == "SGD")
    return make_sgd(parameters, {number("momentum"), decay, flag("nesterov"), number("dampening")},
                    groups);
  if (type == "Lion") return make_lion(parameters, {betas.at(0), betas.at(1), decay}, groups);
  if (type == "RMSprop")
    return make_rmsprop(
        parameters, {number("alpha"), number("eps"), decay, number("momentum"), flag("centered")},
        groups);
  if (type == "Adagrad")
    return make_adagrad(
        parameters, {number("lr_decay"), number("eps"), decay, number("initial_accumulator_value")},
        groups);
  if (type == "Lars")
    return make_lars(
        parameters,
        {number("momentum"), decay, number("trust_coefficient"), number("eps"), no_adapt}, groups,
        parts);
  if (type == "Lamb")
    return make_lamb(parameters,
                     {betas.at(0), betas.at(1), number("eps"), decay, number("min_coeff"),
                      number("max_coeff"), flag("bias_correction"), no_adapt},
                     groups, parts);
  if (type == "Adafactor")
    return make_adafactor(parameters,
                          {number("beta2_decay"), number("eps1"), number("eps2"), number("d"),
                           decay, flag("scale_parameter")},
                          groups);
  AdamWOptions o;
  o.beta1 = betas.at(0);
  o.beta2 = betas.at(1);
  o.eps = number("eps");
  o.weight_decay = decay;
  o.decoupled = flag("adam_w_mode");
  o.bias_correction = flag("bias_correction");
  o.amsgrad = flag("amsgrad");
  o.freeze_step = c.get_int("optimizer.params.freeze_step");
  return make_adamw(parameters, o, groups);
}

LRScheduler build_schedule(const Config& c, int64_t steps, int64_t batch) {
  ScheduleOptions o;
  o.type = c.get_string("scheduler.type");
  o.lr = c.get_double("optimizer.params.lr");
  if (c.applies("scheduler.base_batch_size"))
    o.scale = large_batch_scale(c.get_string("scheduler.lr_scaling"), batch,
                                c.get_int("scheduler.base_batch_size"));
  const bool deepspeed = o.type.rfind("Warmup", 0) == 0;
  auto given = [&](const char* name) {
    return c.has(std::string("scheduler.params.") + name) &&
           c.applies(std::string("scheduler.params.") + name);
  };
  auto number = [&](const char* name) {
    return c.get_double(std::string("scheduler.params.") + name);
  };
  auto count = [&](const char* name) { return c.get_int(std::string("scheduler.params.") + name); };
  // Ours begin without a warm-up unless one is asked for.
  if (given("warmup_num_steps") &&
      (deepspeed || !c.is_default("scheduler.params.warmup_num_steps")))
    o.warmup_num_steps = c.get_int("scheduler.params.warmup_num_steps");
  if (given("total_num_steps")) {
    const int64_t total = c.is_default("scheduler.params.total_num_steps")
                              ? 0
                              : c.get_int("scheduler.params.total_num_steps");
    // A run that is shorter than its warm-up ends in it.
    o.total_num_steps = total > 0 ? total : std::max(steps, o.warmup_num_steps.value_or(0));
  }
  if (given("min_lr_ratio")) o.min_ratio = number("min_lr_ratio");
  if (given("warmup_type")) o.warmup_type = c.get_string("scheduler.params.warmup_type");
  if (given("warmup_min_lr")) o.warmup_min_lr = number("warmup_min_lr");
  if (given("warmup_max_lr")) o.warmup_max_lr = number("warmup_max_lr");
  if (given("warmup_min_ratio")) o.warmup_min_ratio = number("warmup_min_ratio");
  if (given("cos_min_ratio")) o.cos_min_ratio = number("cos_min_ratio");
  if (given("power")) o.power = number("power");
  if (given("decay_num_steps")) o.decay_num_steps = count("decay_num_steps");
  if (given("decay_type")) o.decay_type = c.get_string("scheduler.params.decay_type");
  if (given("cycle_min_lr")) o.cycle_min_lr = number("cycle_min_lr");
  if (given("cycle_max_lr")) o.cycle_max_lr = number("cycle_max_lr");
  if (given("cycle_first_step_size")) o.cycle_first_step_size = count("cycle_first_step_size");
  if (given("cycle_second_step_size")) o.cycle_second_step_size = count("cycle_second_step_size");
  if (given("decay_lr_rate")) o.decay_lr_rate = number("decay_lr_rate");
  if (given("decay_step_size")) o.decay_step_size = count("decay_step_size");
  if (given("lr_range_test_min_lr")) o.lr_range_test_min_lr = number("lr_range_test_min_lr");
  if (given("lr_range_test_step_size"))
    o.lr_range_test_step_size = count("lr_range_test_step_size");
  if (given("lr_range_test_step_rate"))
    o.lr_range_test_step_rate = number("lr_range_test_step_rate");
  if (given("lr_range_test_staircase"))
    o.lr_range_test_staircase = c.get_bool("scheduler.params.lr_range_test_staircase");
  if (given("step_size")) o.step_size = count("step_size");
  if (given("milestones")) {
    o.milestones.emplace();
    for (double m : c.get_double_list("scheduler.params.milestones"))
      o.milestones->push_back(static_cast<int64_t>(m));
  }
  if (given("gamma")) o.gamma = number("gamma");
  if (given("T_max")) o.T_max = count("T_max");
  if (given("T_0")) o.T_0 = count("T_0");
  if (given("T_mult")) o.T_mult = count("T_mult");
  if (given("eta_min")) o.eta_min = number("eta_min");
  if (given("max_lr")) o.max_lr = number("max_lr");
  if (given("total_steps")) {
    const int64_t total = count("total_steps");
    o.total_steps = total > 0 ? total : steps;
    check<UsageError>(*o.total_steps >= steps,
                      "scheduler.params.total_steps is {}, and the run has {} steps: the cycle "
                      "would end before the run",
                      *o.total_steps, steps);
  }
  if (given("pct_start")) o.pct_start = number("pct_start");
  if (given("anneal_strategy"))
    o.anneal_strategy = c.get_string("scheduler.params.anneal_strategy");
  if (given("div_factor")) o.div_factor = number("div_factor");
  if (given("final_div_factor")) o.final_div_factor = number("final_div_factor");
  if (given("three_phase")) o.three_phase = c.get_bool("scheduler.params.three_phase");
  if (given("base_lr")) o.base_lr = number("base_lr");
  if (given("step_size_up")) o.step_size_up = count("step_size_up");
  if (given("step_size_down")) o.step_size_down = count("step_size_down");
  if (given("mode")) o.mode = c.get_string("scheduler.params.mode");
  return LRScheduler(o);
}

}  // namespace

void complete_training(Run& run, const Config& c, ZeroSetup& zero, const PrecisionPlan& precision,
                       int64_t step_weight, const TiedNames& tied) {
  run.clip_norm = c.get_double("gradient_clipping");
  NamedTensors parameters;
  for (const auto& [name, w] : run.weights)
    if (w.requires_grad()) parameters.emplace_back(name, w);
  const NamedTensors buffers = buffers_of(*run.model);
  const Group dp = run.data_parallel();
  run.exchange = make_exchange(c, dp, parameters, hook_for(precision), layout_of(zero));
  CommHook hook = run.exchange->hook();
  std::shared_ptr<BucketTuning> tuned;
  if (std::shared_ptr<TuneBuckets> tuning = TuneBuckets::make(c, dp, parameters)) {
    tuned = tuning->buckets();
    hook = tuned->hook();
    run.features.push_back(std::move(tuning));
  }
  if (std::shared_ptr<GradientNoise> noise = gradient_noise(c, dp, run.batches)) {
    hook = noise->around(hook);
    run.features.push_back(std::move(noise));
  }
  FullySharded* units = zero.sharded.get();
  const bool clips_own = run.clip_norm > 0 && run.exchange->may_clip_own();
  run.gradients = gradients_for(zero, c, precision, parameters, buffers, std::move(hook),
                                std::move(tuned), clips_own);
  run.exchange->attach(parameters, buffers);
  run.compute = compute_for(precision, run.model, run.weights, *run.gradients);
  if (units) run.compute = sharded_compute(std::move(run.compute), *units);
  run.scaling = scaling_for(precision, run.world(), step_weight);
  const auto parts = run.gradients->norm_parts();
  run.optimizer = offloaded(c, zero, *run.gradients, [&](NamedTensors owned) {
    return optimizer_for(precision, std::move(owned),
                         [&](NamedTensors p) { return build_optimizer(c, p, parts, tied); });
  });
  run.schedule.emplace(build_schedule(c, run.steps, run.batches.train));
}

}  // namespace trireme
