// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/complete_run.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/scheduler.h"
#include "trireme/config/sections/step.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/tune_buckets.h"
#include "trireme/train/gradients/gradient_families.h"
#include "trireme/train/gradients/gradient_noise.h"
#include "trireme/train/model_axes/check_replicas.h"
#include "trireme/train/model_axes/mesh_norms.h"
#include "trireme/train/model_axes/shared_sums.h"

namespace trireme {
namespace {

// Patterns of names as configured → patterns of the tensors here. A copy is updated as the
// parameter is of which it is one: what matches that one's name alone counts.
std::vector<std::string> patterns_here(const std::vector<std::string>& patterns,
                                       const NamedTensors& parameters, const TiedNames& tied,
                                       const ParameterLayouts& layouts) {
  const auto all = with_first_names(patterns, tied);
  if (std::none_of(layouts.begin(), layouts.end(),
                   [](const auto& item) { return !item.second.copy_of.empty(); }))
    return all;
  std::vector<std::string> names;
  for (const auto& [name, p] : parameters)
    if (std::any_of(all.begin(), all.end(), [&, &name = name](const std::string& pattern) {
          return glob_match(pattern, whole_name(layouts, name));
        }))
      names.push_back(name);
  return names;
}

std::unique_ptr<Optimizer> build_optimizer(const OptimizerSection& s,
                                           const NamedTensors& parameters,
                                           const std::shared_ptr<const NormParts>& parts,
                                           const TiedNames& tied, const ParameterLayouts& layouts) {
  std::vector<OptionGroup> groups;
  for (const auto& pattern : patterns_here(s.no_decay, parameters, tied, layouts))
    groups.push_back({pattern, 0.0, 1});
  const auto no_adapt = patterns_here(s.no_adapt, parameters, tied, layouts);
  const double decay = s.weight_decay, beta1 = s.betas.at(0), beta2 = s.betas.at(1);

  if (s.type == "SGD")
    return make_sgd(parameters, {s.momentum, decay, s.nesterov, s.dampening}, groups);
  if (s.type == "AdaMod")
    return make_adamod(parameters, {beta1, beta2, s.beta3, s.eps, decay}, groups);
  if (s.type == "Lion") return make_lion(parameters, {beta1, beta2, decay}, groups);
  if (s.type == "RMSprop")
    return make_rmsprop(parameters, {s.alpha, s.eps, decay, s.momentum, s.centered}, groups);
  if (s.type == "Adagrad")
    return make_adagrad(parameters, {s.lr_decay, s.eps, decay, s.initial_accumulator_value},
                        groups);
  if (s.type == "Lars")
    return make_lars(parameters, {s.momentum, decay, s.trust_coefficient, s.eps, no_adapt}, groups,
                     parts);
  if (s.type == "Lamb")
    return make_lamb(
        parameters,
        {beta1, beta2, s.eps, decay, s.min_coeff, s.max_coeff, s.bias_correction, no_adapt}, groups,
        parts);
  if (s.type == "Adafactor")
    return make_adafactor(parameters,
                          {s.beta2_decay, s.eps1, s.eps2, s.d, decay, s.scale_parameter}, groups);
  AdamWOptions o;
  o.beta1 = beta1;
  o.beta2 = beta2;
  o.eps = s.eps;
  o.weight_decay = decay;
  o.decoupled = s.adam_w_mode;
  o.bias_correction = s.bias_correction;
  o.amsgrad = s.amsgrad;
  o.freeze_step = s.freeze_step;
  return make_adamw(parameters, o, groups);
}

LRScheduler build_schedule(const Config& c, int64_t steps, int64_t batch) {
  const auto s = c.section<SchedulerSection>();
  ScheduleOptions o;
  o.type = s.type;
  o.lr = c.section<OptimizerSection>().lr;
  if (s.base_batch_size) o.scale = large_batch_scale(s.lr_scaling, batch, *s.base_batch_size);
  // Our schedules have no warm-up unless one is set.
  if (o.type.starts_with("Warmup") || !c.is_default("scheduler.params.warmup_num_steps"))
    o.warmup_num_steps = s.warmup_num_steps;
  if (s.total_num_steps) {
    const int64_t total = c.is_default("scheduler.params.total_num_steps") ? 0 : *s.total_num_steps;
    // A run that is shorter than its warm-up ends in it.
    o.total_num_steps = total > 0 ? total : std::max(steps, o.warmup_num_steps.value_or(0));
  }
  o.min_ratio = s.min_lr_ratio;
  o.power = s.power;
  o.decay_num_steps = s.decay_num_steps;
  o.decay_type = s.decay_type;
  o.warmup_type = s.warmup_type;
  o.warmup_min_lr = s.warmup_min_lr;
  o.warmup_max_lr = s.warmup_max_lr;
  o.warmup_min_ratio = s.warmup_min_ratio;
  o.cos_min_ratio = s.cos_min_ratio;
  o.cycle_min_lr = s.cycle_min_lr;
  o.cycle_max_lr = s.cycle_max_lr;
  o.cycle_first_step_size = s.cycle_first_step_size;
  o.cycle_second_step_size = s.cycle_second_step_size;
  o.decay_lr_rate = s.decay_lr_rate;
  o.decay_step_size = s.decay_step_size;
  o.lr_range_test_min_lr = s.lr_range_test_min_lr;
  o.lr_range_test_step_size = s.lr_range_test_step_size;
  o.lr_range_test_step_rate = s.lr_range_test_step_rate;
  o.lr_range_test_staircase = s.lr_range_test_staircase;
  o.step_size = s.step_size;
  if (s.milestones) o.milestones.emplace(s.milestones->begin(), s.milestones->end());
  o.gamma = s.gamma;
  o.T_max = s.T_max;
  o.T_0 = s.T_0;
  o.T_mult = s.T_mult;
  o.eta_min = s.eta_min;
  o.max_lr = s.max_lr;
  o.pct_start = s.pct_start;
  o.anneal_strategy = s.anneal_strategy;
  o.div_factor = s.div_factor;
  o.final_div_factor = s.final_div_factor;
  o.three_phase = s.three_phase;
  o.base_lr = s.base_lr;
  o.step_size_up = s.step_size_up;
  o.step_size_down = s.step_size_down;
  o.mode = s.mode;
  if (s.total_steps) {
    o.total_steps = *s.total_steps > 0 ? *s.total_steps : steps;
    check<UsageError>(*o.total_steps >= steps,
                      "scheduler.params.total_steps is {}, and the run has {} steps: the cycle "
                      "would end before the run",
                      *o.total_steps, steps);
  }
  return LRScheduler(o);
}

// In checkpoints, behind how replicas lay out their state.
std::string layout_of(const DeviceMesh& mesh) {
  std::string text;
  for (const char* axis : {"pp", "cp", "tp"})
    if (mesh.size(axis) > 1) text += fmt::format(", {} {}", axis, mesh.size(axis));
  return text;
}

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, t] : tensors) names.push_back(name);
  return names;
}

}  // namespace

std::unique_ptr<Optimizer> plain_optimizer(const Config& config, const NamedTensors& parameters) {
  auto section = config.section<OptimizerSection>();
  section.no_decay.clear();
  section.no_adapt.clear();
  return build_optimizer(section, parameters, nullptr, {}, {});
}

void complete_run(Run& run, const Config& c, ZeroSetup& zero, const PrecisionPlan& precision,
                  int64_t step_weight, const TiedNames& tied) {
  run.clip_norm = c.section<StepSection>().gradient_clipping;
  NamedTensors parameters;
  for (const auto& [name, w] : run.weights)
    if (w.requires_grad()) parameters.emplace_back(name, w);
  const NamedTensors buffers = buffers_of(*run.model);
  const Group dp = run.data_parallel();
  run.exchange =
      make_exchange(c, dp, parameters, hook_for(precision), layout_of(zero) + layout_of(run.mesh));
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
  check_one_round(run.mesh.shape(), names_of(parameters), run.layouts);
  const bool clips_own = run.clip_norm > 0 && run.exchange->may_clip_own();
  run.gradients = gradients_for(zero, c, precision, parameters, buffers, std::move(hook),
                                std::move(tuned), clips_own);
  run.exchange->attach(parameters, buffers);
  run.norm_parts = mesh_norm_parts(run.mesh, *run.gradients, run.layouts, run.reproducible);
  run.parameters = model_numel(run.mesh, *run.gradients, run.layouts);
  run.tally = make_tally(run.mesh, run.norm_parts, run.layouts, run.computation->computes_loss());
  for (auto& sums : shared_sums(run.mesh, *run.gradients, run.layouts))
    run.features.push_back(std::move(sums));
  if (auto sums = tied_stage_sums(run.mesh, *run.gradients, run.layouts))
    run.features.push_back(std::move(sums));
  run.compute = compute_for(precision, run.model, run.weights, *run.gradients);
  if (units) run.compute = sharded_compute(std::move(run.compute), *units);
  run.scaling = scaling_for(precision, run.world(), step_weight);
  const auto parts = run.norm_parts;
  const MakeOptimizer make = [&](NamedTensors p) {
    return build_optimizer(c.section<OptimizerSection>(), p, parts, tied, run.layouts);
  };
  run.optimizer = offloaded(c, zero, precision, run.device, *run.gradients, make);
  if (auto check = check_replicas_feature(c, run)) run.features.push_back(std::move(check));
  run.lr.emplace(build_schedule(c, run.steps, run.batches.train));
}

}  // namespace trireme
