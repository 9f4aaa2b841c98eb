// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/data/corpus.h"
#include "trireme/data/digits.h"
#include "trireme/data/dummy.h"
#include "trireme/data/idx.h"
#include "trireme/layers/dropout.h"
#include "trireme/tensor/random.h"
#include "trireme/train/identity.h"
#include "trireme/train/precision_parts.h"
#include "trireme/train/recompute_setup.h"
#include "trireme/train/reproducible.h"
#include "trireme/train/run.h"
#include "trireme/train/zero_setup.h"

// Configuration → the parts of a run.
namespace trireme {
namespace {

ModelOptions model_options(const Config& c) {
  ModelOptions o;
  o.type = c.get_string("model.type");
  if (o.type == "gpt") {
    o.gpt = {c.get_int("model.layers"),    c.get_int("model.width"), c.get_int("model.heads"),
             c.get_int("model.context"),   c.get_int("model.vocab"), c.get_double("model.dropout"),
             c.get_bool("model.tied_head")};
  } else if (o.type == "mlp") {
    o.mlp_sizes = {c.get_int("model.inputs")};
    for (int64_t width : c.get_int_list("model.hidden")) o.mlp_sizes.push_back(width);
    o.mlp_sizes.push_back(c.get_int("model.outputs"));
  }
  return o;
}

void open_data(Run& run, const Config& c) {
  const std::string type = c.get_string("data.type");
  const bool gpt = c.get_string("model.type") == "gpt";
  const auto seed = static_cast<uint64_t>(run.seed);
  check<UsageError>(gpt == (type == "corpus") || type == "dummy",
                    "{}: data.type '{}' does not feed a model of type '{}'; gpt reads corpus or "
                    "dummy, mlp and net read mnist, digits or "
                    "dummy",
                    c.origin("data.type"), type, c.get_string("model.type"));
  if (type == "corpus") {
    Corpus corpus =
        open_corpus({c.get_string_list("data.paths"), c.get_string_list("data.extensions"),
                     c.get_int("model.context"), c.get_double("data.validation_fraction")});
    run.train_data = corpus.train;
    run.held_out = corpus.validation;
    run.data_identity = fmt::format("corpus {:016x}", corpus.identity);
  } else if (type == "mnist") {
    check<UsageError>(
        c.has("data.path"),
        "data.type is mnist, but data.path is not given: name the folder with the IDX files");
    run.train_data = open_idx(c.get_string("data.path"), IdxPart::kTrain);
    run.held_out = open_idx(c.get_string("data.path"), IdxPart::kTest);
    run.data_identity = fmt::format("mnist {}", run.train_data->size());
  } else if (type == "digits") {
    run.train_data = make_digits({c.get_int("data.train_samples"), seed, "train"});
    run.held_out = make_digits({c.get_int("data.validation_samples"), seed, "validation"});
    run.data_identity = fmt::format("digits {}", run.train_data->size());
  } else {
    DummyOptions o;
    o.tokens = gpt;
    o.seed = seed;
    if (gpt) {
      o.input_shape = {c.get_int("model.context")};
      o.classes = c.get_int("model.vocab");
    } else if (c.get_string("model.type") == "mlp") {
      o.input_shape = {c.get_int("model.inputs")};
      o.classes = c.get_int("model.outputs");
    } else {
      o.input_shape = {1, 28, 28};
    }
    run.train_data = make_dummy(o);
    run.data_identity = "dummy";
  }
  if (gpt && type == "corpus")
    check<UsageError>(c.get_int("model.vocab") >= 256,
                      "{}: model.vocab is {}; text is bytes, so at least 256",
                      c.origin("model.vocab"), c.get_int("model.vocab"));
  run.text = gpt;
}

GlobalBatch plan_of(const Run& run) {
  GlobalBatchOptions o;
  o.dataset_size = run.train_data->size();
  o.leaf_size = run.batches.micro;
  o.leaves = run.batches.accumulation * run.batches.dp;
  o.seed = static_cast<uint64_t>(run.seed);
  return GlobalBatch(o);
}

std::vector<OptionGroup> no_decay_groups(const Config& c) {
  std::vector<OptionGroup> groups;
  for (const auto& pattern : c.get_string_list("optimizer.params.no_decay"))
    groups.push_back({pattern, 0.0, 1});
  return groups;
}

std::unique_ptr<Optimizer> build_optimizer(const Config& c, const NamedTensors& parameters,
                                           const std::shared_ptr<const NormParts>& parts) {
  const std::string type = c.get_string("optimizer.type");
  const auto groups = no_decay_groups(c);
  auto number = [&](const char* name) {
    return c.get_double(std::string("optimizer.params.") + name);
  };
  auto flag = [&](const char* name) { return c.get_bool(std::string("optimizer.params.") + name); };
  const double decay = number("weight_decay");
  std::vector<double> betas{0, 0};
  if (c.applies("optimizer.params.betas")) betas = c.get_double_list("optimizer.params.betas");
  std::vector<std::string> no_adapt;
  if (c.applies("optimizer.params.no_adapt"))
    no_adapt = c.get_string_list("optimizer.params.no_adapt");

  if (type == "SGD")
    return make_sgd(parameters, {number("momentum"), decay, flag("nesterov")}, groups);
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
                      number("max_coeff"), true, no_adapt},
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
  return LRScheduler(o);
}

void model_state(Model& model, const NamedTensors& weights, StateVisitor& v) {
  for (const auto& [name, w] : weights) v.tensor("model." + name, w.detach());
  for (const auto& item : model.named_buffers()) v.tensor("model." + item.key(), item.value());
}

int64_t count_steps(const Config& c, const Run& run) {
  const int64_t steps = c.get_int("training.steps"), epochs = c.get_int("training.epochs");
  if (epochs == 0) return steps ? steps : 1000;
  const int64_t by_epochs = epochs * plan_of(run).steps_per_epoch();
  return steps ? std::min(steps, by_epochs) : by_epochs;
}

}  // namespace

std::shared_ptr<Model> build_model(const Config& config, const UnitMade& unit_made) {
  const auto seed = static_cast<uint64_t>(config.get_int("training.seed"));
  seed_default_generator(seed);
  ModelOptions options = model_options(config);
  options.unit_made = unit_made;
  auto model = make_model(options, seed);
  name_dropouts(*model);
  return model;
}

std::shared_ptr<Model> load_model(const Config& config, const std::string& checkpoint) {
  auto model = build_model(config);
  const PrecisionPlan plan = plan_precision(config);
  const NamedTensors weights = stored_weights(*model, plan);
  load_step(checkpoint, [&](StateVisitor& v) { model_state(*model, weights, v); }, {"model."});
  restore_model(*model, weights, plan);
  return model;
}

void start_data(Run& run, const Config& config) {
  LoaderOptions o;
  o.first_step = run.step;
  o.timeout = run.group.timeout();
  // Ahead only where the rank has a core to spare: else the thread takes time from the one that
  // trains.
  o.background = config.get_int("data.workers") > 0 && spare_cpus(run.group.size()) > 0;
  run.loader = std::make_unique<PrefetchingLoader>(
      leaf_batches(run.train_data, plan_of(run), run.group.rank(), run.group.size(), run.deal), o);
}

Run build_run(const Config& c, Group group) {
  Run run;
  run.group = group;
  run.seed = c.get_int("training.seed");
  const std::string device = c.get_string("device");
  check<UsageError>(
      device != "cuda",
      "{}: device is cuda, but the {} backend moves CPU memory; this version trains on the CPU",
      c.origin("device"), group.backend());
  run.batches = c.resolve_batches(group.size());
  run.reproducible = c.get_bool("training.reproducible");
  const int64_t leaves = run.batches.accumulation * run.batches.dp;
  const PrecisionPlan precision = plan_precision(c);
  check_precision(precision, at::kCPU);
  run.precision = describe(precision);
  open_data(run, c);
  ZeroSetup zero = set_up_zero(c, group, precision);
  run.sharding = describe(zero, c);
  run.collective_forward = zero.stage == ZeroStage::parameters;
  run.model = made_sharded(zero, precision,
                           [&](const UnitMade& unit_made) { return build_model(c, unit_made); });
  if (run.reproducible && zero.stage != ZeroStage::none) run.deal = Deal::strided;
  if (run.reproducible) check_reproducible(group, leaves, precision, *run.model);
  run.weights = stored_weights(*run.model, precision);
  run.steps = count_steps(c, run);
  run.clip_norm = c.get_double("gradient_clipping");
  run.eval_batches = c.get_int("training.eval_batches");
  NamedTensors parameters, buffers;
  for (const auto& [name, w] : run.weights)
    if (w.requires_grad()) parameters.emplace_back(name, w);
  for (const auto& item : run.model->named_buffers())
    buffers.emplace_back(item.key(), item.value());
  run.noise = gradient_noise(c, group, run.batches);
  CommHook hook = hook_for(precision);
  if (run.noise) hook = run.noise->around(hook);
  FullySharded* units = zero.sharded.get();
  run.gradients = gradients_for(zero, c, precision, parameters, buffers, std::move(hook));
  run.compute = compute_for(precision, run.model, run.weights, *run.gradients);
  if (units) run.compute = sharded_compute(std::move(run.compute), *units);
  const int64_t per_sample = run.text ? c.get_int("model.context") : 1;
  run.scaling = scaling_for(precision, group, run.batches.train * per_sample);
  const auto parts = run.gradients->norm_parts();
  run.optimizer = offloaded(c, zero, *run.gradients, [&](NamedTensors owned) {
    return optimizer_for(precision, std::move(owned),
                         [&](NamedTensors p) { return build_optimizer(c, p, parts); });
  });
  run.schedule.emplace(build_schedule(c, run.steps, run.batches.train));
  run.identity = run_identity(run.batches.micro, leaves);
  run.recompute = set_up_recompute(run, c);
  return run;
}

void Run::state(StateVisitor& v) {
  ShardedParameters* sharded = gradients->sharded();
  if (collective_forward) {
    sharded->state(v);
    model_state(*model, {}, v);
  } else {
    model_state(*model, weights, v);
  }
  if (sharded)
    sharded->sharded_state(v, [&](StateVisitor& shards) { optimizer->state(shards); });
  else
    optimizer->state(v);
  scaling->state(v);
  v.value("train.step", step);
  v.value("train.seed", seed);
  v.value("train.identity", identity);
  v.value("train.data", data_identity);
  v.value("train.samples_per_step", batches.train);
}

}  // namespace trireme
