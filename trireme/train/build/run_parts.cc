// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/run_parts.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/data.h"
#include "trireme/config/sections/data_efficiency.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/grad/module_sync.h"
#include "trireme/tensor/layout_state.h"
#include "trireme/tensor/module_device.h"
#include "trireme/train/balance/balance.h"
#include "trireme/train/balance/memory_backoff.h"
#include "trireme/train/build/complete_run.h"
#include "trireme/train/build/half_products_setup.h"
#include "trireme/train/build/initial_weights.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/recompute_setup.h"
#include "trireme/train/build/zero_setup.h"
#include "trireme/train/model_axes/begin_alike.h"
#include "trireme/train/model_axes/mesh_norms.h"
#include "trireme/train/model_axes/model_group.h"
#include "trireme/train/model_axes/shared_sums.h"
#include "trireme/train/setup/identity.h"
#include "trireme/train/setup/model_mesh.h"
#include "trireme/train/setup/reproducible.h"
#include "trireme/train/setup/run_device.h"
#include "trireme/train/setup/same_data.h"

// Makes the parts of a run from its configuration.
namespace trireme {
namespace {

GlobalBatchOptions batch_options(const Run& run, const TrainingSection& training) {
  GlobalBatchOptions o;
  o.dataset_size = run.train_data->size();
  o.leaf_size = run.batches.micro;
  o.leaves = run.batches.micro_batches();
  o.seed = static_cast<uint64_t>(run.seed);
  o.drop_last = training.drop_last;
  o.origin = run.data_origin.value_or(DataOrigin());
  return o;
}

TokenBatchOptions token_options(const Run& run, const DataEfficiencySection& d) {
  TokenBatchOptions o;
  o.max_tokens = d.max_tokens.value();
  o.min_rows = d.min_batch_size;
  o.max_rows = d.max_batch_size;
  o.picking = d.sequence_picking_order == "random"   ? TokenBatchOptions::Picking::random
              : d.sequence_picking_order == "seqlen" ? TokenBatchOptions::Picking::seqlen
                                                     : TokenBatchOptions::Picking::dataloader;
  o.seed = static_cast<uint64_t>(run.seed);
  return o;
}

// The run's data, divided into steps.
void plan_steps(Run& run, const Config& c, const TrainingSection& training, Deal deal) {
  if (!run.train_data) {
    run.plan = callers_plan(run.batches.train);
    return;
  }
  if (!training.drop_last)
    run.data_identity += ", the last of an epoch too";  // the position in the data differs
  const auto d = c.section<DataEfficiencySection>();
  if (!d.batching_enabled) {
    const bool even = run.batches.micro_batches() % run.batches.dp == 0;
    run.plan = leaf_plan(batch_options(run, training), even ? deal : Deal::uneven);
    return;
  }
  const TokenBatchOptions o = token_options(run, d);
  run.plan = std::make_unique<TokenPlan>(
      std::make_shared<TokenSteps>(run.train_data->lengths(), o, run.batches.micro_batches(),
                                   run.data_origin.value_or(DataOrigin())));
  run.lr_by_batch = d.lr_scaling_method;
  run.data_identity += fmt::format(" in {} tokens, {} to {} sequences, {}", o.max_tokens,
                                   o.min_rows, o.max_rows, d.sequence_picking_order);
}

int64_t count_steps(const Run& run, const TrainingSection& training, int64_t otherwise) {
  if (training.epochs == 0) return training.steps ? training.steps : otherwise;
  const int64_t by_epochs = run.plan->first_step_of(training.epochs);
  return training.steps ? std::min(training.steps, by_epochs) : by_epochs;
}

LoaderOptions loader_options(const Run& run, const Config& c) {
  LoaderOptions o;
  o.first_step = run.data_origin ? run.data_origin->step : run.step;
  o.timeout = run.world().timeout();
  // By default a thread reads ahead if the rank has a core to spare; otherwise it would slow down
  // the training thread. What a device computes takes none.
  const bool spare = is_asynchronous(run.device) || spare_cpus(run.world().size()) > 0;
  const int64_t workers = c.section<DataSection>().workers.value_or(spare ? 1 : 0);
  o.background = workers > 0;
  o.threads = std::max(1, static_cast<int>(workers));
  o.depth = std::max(o.depth, o.threads);
  return o;
}

// Sets up shares that follow throughput, and what a rank does without memory.
void set_up_balance(Run& run, const Config& c, const TrainingSection& training) {
  const auto section = c.section<BalanceSection>();
  if (section.mode == "none") return;
  const Group dp = run.data_parallel();
  const int rank = dp.rank(), ranks = dp.size();
  BalanceOptions options = balance_options(c, run.batches);
  options.loader_depth = loader_options(run, c).depth;
  auto balance = std::make_shared<Balance>(options, ranks, run.gradients->record(), *run.own_time);
  run.plan =
      share_plan(batch_options(run, training), balance->deal(), most_at_once(c, run.batches, rank));
  run.features.push_back(std::move(balance));
  if (!section.memory_backoff) return;
  auto backoff = std::make_shared<MemoryBackoff>(rank, ranks, run.gradients->record());
  run.out_of_memory = backoff;
  run.features.push_back(std::move(backoff));
}

std::string describe_model_axes(const DeviceMesh& mesh, const Config& c) {
  const int tp = mesh.size("tp"), pp = mesh.size("pp");
  const auto parallelism = c.section<ParallelismSection>();
  std::vector<std::string> axes;
  if (pp > 1)
    axes.push_back(fmt::format("a pipeline of {} ranks by {}", pp,
                               parallelism.schedule_file ? "the table " + *parallelism.schedule_file
                                                         : parallelism.schedule));
  if (const int cp = mesh.size("cp"); cp > 1)
    axes.push_back(fmt::format("positions over {} ranks by {}{}", cp, parallelism.cp_method,
                               parallelism.cp_balance == "none" ? ", in order" : ""));
  if (tp > 1)
    axes.push_back(fmt::format("layers over {} ranks{}", tp,
                               parallelism.sequence_parallel ? ", positions too" : ""));
  return fmt::format("{}", fmt::join(axes, ", "));
}

// Loads the weights of checkpoint.init, before masters, shards and averages are made of them.
std::string begin_with_weights(Run& run, const Config& c, const ZeroSetup& zero,
                               const PrecisionPlan& precision, const RunParts& parts) {
  const std::string text = load_initial_weights(
      c,
      [&](StateVisitor& v) {
        LayoutVisitor whole(v, run.layouts, first_replica(run.mesh));
        if (zero.sharded) zero.sharded->state(whole);
        model_state(*run.model, zero.sharded ? NamedTensors() : run.weights, whole);
      },
      run.world(), with_copies(parts.tied, run.layouts), parts.elsewhere);
  if (!text.empty() && precision.emulated()) restore_model(*run.model, run.weights, precision);
  return text;
}

void check_optimizer_of_shared(const Run& run, const Config& c) {
  const std::string type = c.section<OptimizerSection>().type;
  check<UsageError>(
      (type != "Lamb" && type != "Lars") || !parts_share_elements(run.mesh, run.layouts),
      "{}: {} measures each parameter, and tensor-parallel ranks of this model share key/value "
      "heads: use another optimizer, or as many key/value heads as ranks",
      c.origin("optimizer.type"), type);
}

// Shards the module as one unit, the root, with rank 0's values. Call it before anything refers to
// its parameters' memory.
void shard_whole(ZeroSetup& zero, const PrecisionPlan& precision, torch::nn::Module& module) {
  if (!zero.sharded) return;
  if (precision.stored != at::kFloat) cast_parameters(module, precision.stored);
  zero.sharded->root(module);
  at::NoGradGuard no_grad;
  for (const auto& item : module.named_buffers())
    zero.groups.world.broadcast(item.value(), 0).wait();
}

}  // namespace

void model_state(Model& model, const NamedTensors& weights, StateVisitor& v) {
  for (const auto& [name, w] : weights) v.tensor("model." + name, w.detach());
  for (const auto& [name, b] : buffers_of(model)) v.copy_of_rank_0("model." + name, b);
}

void start_data(Run& run, const Config& config) {
  if (!run.train_data) return;
  const Group dp = run.data_parallel();
  auto make = run.plan->batches(run.train_data, dp.rank(), dp.size());
  run.loader.reset();
  if (is_asynchronous(run.device)) {
    run.device_batches = std::make_unique<DeviceBatches>(run.device);
    make = run.device_batches->ahead(std::move(make));
  }
  run.loader = std::make_unique<PrefetchingLoader>(std::move(make), loader_options(run, config));
}

void check_some_divided(const DeviceMesh& mesh, const ParameterLayouts& layouts, const Config& c) {
  if (mesh.size("tp") == 1) return;
  bool any = false;
  for (const auto& [name, layout] : layouts) any = any || layout.on("tp") == OnAxis::split;
  const auto all = all_gather_object(mesh.world(), any);
  check<UsageError>(std::find(all.begin(), all.end(), true) != all.end(),
                    "parallelism.tp {} ({}): no parameter of the model is divided over ranks. Make "
                    "it of the layers of docs/tensor_parallel.md, or leave the key out",
                    mesh.size("tp"), c.origin("parallelism.tp"));
}

Run build_run(const Config& c, Group group, const RunParts& parts) {
  const auto training = c.section<TrainingSection>();
  Run run;
  run.device = parts.whole ? engine_device(c, *parts.whole, group) : run_device(c, group);
  const CurrentDevice current(run.device);
  run.mesh = parts.mesh ? parts.mesh : mesh_of(c, group);
  run.seed = training.seed;
  run.batches = parts.batches ? *parts.batches : c.resolve_batches(group.size());
  run.lr_by_ranks = parts.lr_factor;
  run.reproducible = training.reproducible;
  run.loss = parts.loss;
  run.data_origin = parts.data_origin;
  const int64_t leaves = run.batches.micro_batches();
  const PrecisionPlan precision = plan_precision(c);
  check_precision(precision, run.device);
  check_device(c, run.device);
  rehearse_step(c, precision, run.device, run.world(), parts.least);
  if (parts.open_data) open_same_data(run, parts.open_data);
  ZeroSetup zero =
      set_up_zero(c, run.mesh, precision, parts.stages ? parts.stages(run.mesh) : ModelStages{});
  run.collective_forward = zero.stage == ZeroStage::parameters;
  const std::string about_zero = describe(zero, c);
  plan_steps(run, c, training,
             run.reproducible && zero.stage != ZeroStage::none ? Deal::strided : Deal::blocks);
  if (parts.whole) {
    move_module(*parts.whole, run.device);
    const std::string what = "the module of initialize()";
    if (run.mesh.size("tp") == 1)
      check_undivided(*parts.whole, what);
    else
      begin_alike(*parts.whole, what, run.mesh.group("tp"));
    shard_whole(zero, precision, *parts.whole);
    run.model = parts.make_model(run.mesh, {});
  } else {
    run.model = made_sharded(zero, precision, run.device, [&](const UnitMade& made) {
      return parts.make_model(run.mesh, made);
    });
  }
  if (is_divided(run.mesh)) {
    run.layouts = layouts_of(parts.whole ? *parts.whole : *run.model);
    for (const auto& [copy, of] : run.model->copies()) run.layouts.at(copy).copy_of = of;
    check_optimizer_of_shared(run, c);
    if (parts.whole) check_some_divided(run.mesh, run.layouts, c);
    count_tied_stages_once(run.mesh, run.layouts);
  }
  if (run.reproducible) check_reproducible(run.data_parallel(), leaves, precision, *run.model);
  run.weights = stored_weights(*run.model, precision);
  if (parts.names) run.weights = parts.names(std::move(run.weights));
  if (Group dp = run.data_parallel(); parts.whole)
    verify_same(dp, run.weights, "parameter", parts.tied);
  const std::string about_weights =
      parts.init ? begin_with_weights(run, c, zero, precision, parts) : "";
  run.steps = count_steps(run, training, parts.default_steps);
  run.eval_batches = training.eval_batches;
  if (parts.computation) run.computation = parts.computation(run);
  complete_run(
      run, c, zero, precision,
      parts.weight_of_step ? parts.weight_of_step : run.batches.train * parts.weight_per_sample,
      parts.tied);
  set_up_balance(run, c, training);
  run.identity = run_identity(run.batches.micro, leaves, run.device, run.mesh.size("tp"));
  run.setup = {describe_device(run.device), describe(precision), set_up_recompute(run, c),
               about_zero, describe_model_axes(run.mesh, c)};
  for (const std::string& line : {parts.about_stages ? parts.about_stages() : "", about_weights,
                                  set_up_half_products(run, precision, group)})
    if (!line.empty()) run.setup.push_back(line);
  return run;
}

int64_t Run::samples_of_step() const {
  // A program may take several batches for one step of the optimizer, or none.
  if (!loader) return plan->samples(step);
  const int64_t first = data_origin ? data_origin->step : 0;
  return plan->samples(std::max(loader->step() - 1, first));
}

double Run::lr_factor() const {
  return lr_by_ranks * batch_lr_factor(lr_by_batch, static_cast<double>(samples_of_step()),
                                       static_cast<double>(batches.train));
}

void Run::loaded() {
  // Shards lie in the memory of parameters that were loaded under another version counter: who
  // keeps a copy of them (optim/host_optimizer.h) must see that they are others.
  for (const auto& [name, p] : gradients->owned()) p.unsafeGetTensorImpl()->bump_version();
  gradients->publish();
}

void Run::state(StateVisitor& visitor) {
  LayoutVisitor v(visitor, layouts, first_replica(mesh));
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
    exchange->state(v, [&](StateVisitor& own) { optimizer->state(own); });
  if (exchange->sees_buckets()) gradients->state(v);
  scaling->state(v);
  for (const auto& feature : features) feature->state(v);
  v.value("train.step", step);
  v.value("train.seed", seed);
  v.value("train.identity", identity);
  v.value("train.data", data_identity);
  int64_t samples = batches.train;  // of this process, whatever the checkpoint was saved with
  v.value("train.samples_per_step", samples);
}

}  // namespace trireme
