// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/data/corpus.h"
#include "trireme/data/digits.h"
#include "trireme/data/documents.h"
#include "trireme/data/dummy.h"
#include "trireme/data/idx.h"
#include "trireme/layers/dropout.h"
#include "trireme/tensor/random.h"
#include "trireme/train/balance/balance.h"
#include "trireme/train/balance/memory_backoff.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/recompute_setup.h"
#include "trireme/train/build/training_parts.h"
#include "trireme/train/build/zero_setup.h"
#include "trireme/train/identity.h"
#include "trireme/train/reproducible.h"
#include "trireme/train/run.h"

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
  const bool from_files = type == "corpus" || type == "documents";
  check<UsageError>(gpt == from_files || type == "dummy",
                    "{}: data.type '{}' does not feed a model of type '{}'; gpt reads corpus, "
                    "documents or dummy, the others read mnist, digits or dummy",
                    c.origin("data.type"), type, c.get_string("model.type"));
  if (from_files) {
    const CorpusOptions options{c.get_string_list("data.paths"),
                                c.get_string_list("data.extensions"), c.get_int("model.context"),
                                c.get_double("data.validation_fraction")};
    Corpus corpus = type == "corpus" ? open_corpus(options) : open_documents(options);
    run.train_data = corpus.train;
    run.held_out = corpus.validation;
    run.data_identity = fmt::format("{} {:016x}", type, corpus.identity);
  } else if (type == "mnist") {
    check<UsageError>(
        c.has("data.path"),
        "data.type is mnist, but data.path is not given: name the folder with the IDX files");
    run.train_data = open_idx(c.get_string("data.path"), IdxPart::kTrain);
    run.held_out = open_idx(c.get_string("data.path"), IdxPart::kTest);
    run.data_identity = fmt::format("mnist {}", run.train_data->size());
  } else if (type == "digits") {
    run.train_data = make_digits({c.get_int("data.train_samples"), seed, "train"});
    if (const int64_t held_out = c.get_int("data.validation_samples"); held_out > 0)
      run.held_out = make_digits({held_out, seed, "validation"});
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
    const int64_t samples = c.get_int("data.train_samples");
    if (samples > 0) o.samples = samples;
    run.train_data = make_dummy(o);
    run.data_identity = samples > 0 ? fmt::format("dummy {}", samples) : "dummy";
  }
  if (gpt && from_files)
    check<UsageError>(c.get_int("model.vocab") >= 256,
                      "{}: model.vocab is {}; text is bytes, so at least 256",
                      c.origin("model.vocab"), c.get_int("model.vocab"));
  run.text = gpt;
  if (!c.get_bool("training.drop_last"))
    run.data_identity += ", the last of an epoch too";  // another place in it
}

GlobalBatchOptions batch_options(const Run& run, const Config& c) {
  GlobalBatchOptions o;
  o.dataset_size = run.train_data->size();
  o.leaf_size = run.batches.micro;
  o.leaves = run.batches.accumulation * run.batches.dp;
  o.seed = static_cast<uint64_t>(run.seed);
  o.drop_last = c.get_bool("training.drop_last");
  return o;
}

void model_state(Model& model, const NamedTensors& weights, StateVisitor& v) {
  for (const auto& [name, w] : weights) v.tensor("model." + name, w.detach());
  for (const auto& [name, b] : buffers_of(model)) v.tensor("model." + name, b);
}

int64_t count_steps(const Config& c, const Run& run) {
  const int64_t steps = c.get_int("training.steps"), epochs = c.get_int("training.epochs");
  if (epochs == 0) return steps ? steps : 1000;
  const int64_t by_epochs = epochs * run.plan->steps_per_epoch();
  return steps ? std::min(steps, by_epochs) : by_epochs;
}

// Micro-batches by a budget of tokens.
TokenBatchOptions token_options(const Run& run, const Config& c, const std::string& section) {
  TokenBatchOptions o;
  o.max_tokens = c.get_int(section + "max_tokens");
  o.min_rows = c.get_int(section + "min_batch_size");
  o.max_rows = c.get_int(section + "max_batch_size");
  const std::string order = c.get_string(section + "sequence_picking_order");
  o.picking = order == "random"   ? TokenBatchOptions::Picking::random
              : order == "seqlen" ? TokenBatchOptions::Picking::seqlen
                                  : TokenBatchOptions::Picking::dataloader;
  o.seed = static_cast<uint64_t>(run.seed);
  return o;
}

// The run's data, divided into steps.
void plan_steps(Run& run, const Config& c, Deal deal) {
  const std::string section = "data_efficiency.data_sampling.dynamic_batching.";
  if (!c.applies(section + "enabled") || !c.get_bool(section + "enabled")) {
    run.plan = leaf_plan(batch_options(run, c), deal);
    return;
  }
  const TokenBatchOptions o = token_options(run, c, section);
  run.plan = std::make_unique<TokenPlan>(std::make_shared<TokenSteps>(
      run.train_data->lengths(), o, run.batches.accumulation * run.batches.dp));
  run.lr_by_batch = c.get_string(section + "lr_scaling_method");
  run.data_identity +=
      fmt::format(" in {} tokens, {} to {} sequences, {}", o.max_tokens, o.min_rows, o.max_rows,
                  c.get_string(section + "sequence_picking_order"));
}

LoaderOptions loader_options(const Run& run, const Config& c) {
  LoaderOptions o;
  o.first_step = run.step;
  o.timeout = run.world().timeout();
  // Left to us, a thread reads ahead where the rank has a core to spare: else it takes time from
  // the one that trains.
  const int64_t workers = c.has("data.workers")                ? c.get_int("data.workers")
                          : spare_cpus(run.world().size()) > 0 ? 1
                                                               : 0;
  o.background = workers > 0;
  o.threads = std::max(1, static_cast<int>(workers));
  o.depth = std::max(o.depth, o.threads);
  return o;
}

// Shares of ranks that follow their throughput, and what a rank without memory does.
void set_up_balance(Run& run, const Config& c) {
  if (c.get_string("balance.mode") == "none") return;
  const Group dp = run.data_parallel();
  const int rank = dp.rank(), ranks = dp.size();
  BalanceOptions options = balance_options(c, run.batches);
  options.loader_depth = loader_options(run, c).depth;
  auto balance = std::make_shared<Balance>(options, ranks, run.gradients->record(), *run.own_time);
  run.plan = share_plan(batch_options(run, c), balance->deal(), most_at_once(c, run.batches, rank));
  run.features.push_back(std::move(balance));
  if (!c.get_bool("balance.memory_backoff")) return;
  auto backoff = std::make_shared<MemoryBackoff>(rank, ranks, run.gradients->record());
  run.out_of_memory = backoff;
  run.features.push_back(std::move(backoff));
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
  const Group dp = run.data_parallel();
  run.loader = std::make_unique<PrefetchingLoader>(
      run.plan->batches(run.train_data, dp.rank(), dp.size()), loader_options(run, config));
}

Run build_run(const Config& c, Group group) {
  Run run;
  const Sharding sharding = c.resolve_sharding(group.size());
  run.mesh = DeviceMesh(
      group, parallel_axes({.dp_replicate = sharding.dp_replicate, .dp_shard = sharding.dp_shard}));
  run.seed = c.get_int("training.seed");
  run.batches = c.resolve_batches(group.size());
  run.reproducible = c.get_bool("training.reproducible");
  const int64_t leaves = run.batches.accumulation * run.batches.dp;
  const PrecisionPlan precision = plan_precision(c);
  check_precision(precision, at::kCPU);
  open_data(run, c);
  ZeroSetup zero = set_up_zero(c, group, precision);
  run.collective_forward = zero.stage == ZeroStage::parameters;
  const std::string about_zero = describe(zero, c);
  run.model = made_sharded(zero, precision,
                           [&](const UnitMade& unit_made) { return build_model(c, unit_made); });
  plan_steps(run, c,
             run.reproducible && zero.stage != ZeroStage::none ? Deal::strided : Deal::blocks);
  if (run.reproducible) check_reproducible(group, leaves, precision, *run.model);
  run.weights = stored_weights(*run.model, precision);
  run.steps = count_steps(c, run);
  run.eval_batches = c.get_int("training.eval_batches");
  const int64_t per_sample = run.text ? c.get_int("model.context") : 1;
  complete_training(run, c, zero, precision, run.batches.train * per_sample);
  set_up_balance(run, c);
  run.identity = run_identity(run.batches.micro, leaves);
  run.setup = {describe(precision), set_up_recompute(run, c), about_zero};
  return run;
}

double Run::lr_factor() const {
  return batch_lr_factor(lr_by_batch, static_cast<double>(samples_of_step()),
                         static_cast<double>(batches.train));
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
    exchange->state(v, [&](StateVisitor& own) { optimizer->state(own); });
  if (exchange->sees_buckets()) gradients->state(v);
  scaling->state(v);
  for (const auto& feature : features) feature->state(v);
  v.value("train.step", step);
  v.value("train.seed", seed);
  v.value("train.identity", identity);
  v.value("train.data", data_identity);
  v.value("train.samples_per_step", batches.train);
}

}  // namespace trireme
