// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/config/sections/data.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/data/sources/corpus.h"
#include "trireme/data/sources/digits.h"
#include "trireme/data/sources/documents.h"
#include "trireme/data/sources/dummy.h"
#include "trireme/data/sources/idx.h"
#include "trireme/layers/dropout.h"
#include "trireme/models/gpt_stages.h"
#include "trireme/models/parallel_gpt.h"
#include "trireme/tensor/module_device.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/model_axes/schedule_table.h"
#include "trireme/train/model_axes/stage_costs.h"
#include "trireme/train/model_axes/through_stages.h"
#include "trireme/train/setup/model_mesh.h"
#include "trireme/train/setup/run_device.h"

// The models and the data that a configuration can name.
namespace trireme {
namespace {

ModelOptions model_options(const Config& config) {
  const auto m = config.section<ModelSection>();
  ModelOptions o;
  o.type = m.type;
  if (o.type == "gpt") {
    o.gpt = {m.layers, m.width, m.heads, m.context, m.vocab, m.dropout, m.tied_head};
    o.gpt.end_of_document = config.section<DataSection>().end_of_document;
  } else if (o.type == "mlp") {
    o.mlp_sizes = {m.inputs};
    o.mlp_sizes.insert(o.mlp_sizes.end(), m.hidden.begin(), m.hidden.end());
    o.mlp_sizes.push_back(m.outputs);
  }
  return o;
}

DummyOptions dummy_options(const ModelSection& m, const DataSection& d, uint64_t seed) {
  DummyOptions o;
  o.tokens = m.type == "gpt";
  o.seed = seed;
  if (o.tokens) {
    o.input_shape = {m.context};
    o.classes = m.vocab;
  } else if (m.type == "mlp") {
    o.input_shape = {m.inputs};
    o.classes = m.outputs;
  } else {
    o.input_shape = {1, 28, 28};
  }
  if (d.train_samples > 0) o.samples = d.train_samples;
  return o;
}

void open_data(Run& run, const Config& c) {
  const auto m = c.section<ModelSection>();
  const auto d = c.section<DataSection>();
  const bool gpt = m.type == "gpt";
  const auto seed = static_cast<uint64_t>(run.seed);
  const bool from_files = d.type == "corpus" || d.type == "documents";
  check<UsageError>(gpt == from_files || d.type == "dummy",
                    "{}: data.type '{}' does not suit a model of type '{}'; gpt reads corpus, "
                    "documents or dummy, the others read mnist, digits or dummy",
                    c.origin("data.type"), d.type, m.type);
  if (from_files) {
    CorpusOptions options{d.paths, d.extensions, m.context, d.validation_fraction};
    if (d.end_of_document) options.end_of_document = static_cast<uint8_t>(*d.end_of_document);
    Corpus corpus = d.type == "corpus" ? open_corpus(options) : open_documents(options);
    run.train_data = corpus.train;
    run.held_out = corpus.validation;
    run.data_identity = fmt::format("{} {:016x}", d.type, corpus.identity);
    run.data_contents = fmt::format("{:016x}", corpus.contents);
    check<UsageError>(m.vocab >= 256, "{}: model.vocab is {}; text is bytes, so at least 256",
                      c.origin("model.vocab"), m.vocab);
  } else if (d.type == "mnist") {
    check<UsageError>(
        d.path.has_value(),
        "data.type is mnist, but data.path is not given: name the folder with the IDX files");
    run.train_data = open_idx(*d.path, IdxPart::kTrain);
    run.held_out = open_idx(*d.path, IdxPart::kTest);
    run.data_identity = fmt::format("mnist {}", run.train_data->size());
  } else if (d.type == "digits") {
    run.train_data = make_digits({d.train_samples, seed, "train"});
    if (d.validation_samples > 0)
      run.held_out = make_digits({d.validation_samples, seed, "validation"});
    run.data_identity = fmt::format("digits {}", run.train_data->size());
  } else {
    run.train_data = make_dummy(dummy_options(m, d, seed));
    run.data_identity = d.train_samples > 0 ? fmt::format("dummy {}", d.train_samples) : "dummy";
  }
  run.text = gpt;
}

// A network of the same layers: operators are asked for by what is computed, not by how much.
LeastModel least_model(const Config& config) {
  ModelOptions o = model_options(config);
  const at::TensorOptions numbers(at::kLong);
  LeastModel least;
  if (o.type == "gpt") {
    o.gpt.layers = 1;
    o.gpt.heads = std::min<int64_t>(o.gpt.heads, 2);
    o.gpt.width = 8 * o.gpt.heads;
    o.gpt.context = std::min<int64_t>(o.gpt.context, 8);
    o.gpt.vocab = std::min<int64_t>(o.gpt.vocab, 32);
    least.input =
        at::arange(2 * o.gpt.context, numbers).remainder(o.gpt.vocab).view({2, o.gpt.context});
    least.target = least.input;
  } else {
    for (int64_t& size : o.mlp_sizes) size = std::min<int64_t>(size, 8);
    least.input = o.type == "mlp" ? at::ones({2, o.mlp_sizes.front()}) : at::ones({2, 1, 28, 28});
    least.target = at::zeros({2}, numbers);
  }
  least.model = make_model(o, 0);
  return least;
}

// What this rank of the mesh has of the model: the blocks of `stages`, parts of them.
std::shared_ptr<Model> divided_gpt(const Config& c, const DeviceMesh& mesh,
                                   std::vector<pipeline::StageBlocks> stages,
                                   const UnitMade& unit_made) {
  const auto seed = static_cast<uint64_t>(c.section<TrainingSection>().seed);
  ModelOptions options = model_options(c);
  options.unit_made = unit_made;
  check<UsageError>(options.type == "gpt",
                    "{}: a model of type '{}' cannot be divided over ranks: only gpt can",
                    c.origin("model.type"), options.type);
  options.gpt.stages = std::move(stages);
  if (mesh.size("tp") * mesh.size("cp") == 1) return make_model(options, seed);
  ParallelGptOptions gpt;
  static_cast<GptOptions&>(gpt) = options.gpt;
  return std::make_shared<ParallelGpt>(tensor_parallel_of(c, mesh), gpt, seed, unit_made,
                                       context_parallel_of(c, mesh));
}

// The seconds that each block takes, the first with the embedding and the last with the head and
// the loss. All blocks are alike: one of them is made, and what is around them.
std::vector<double> measured_gpt(const Config& c, const DeviceMesh& mesh) {
  const at::Device device = run_device(c, mesh.world());
  const int64_t layers = c.section<ModelSection>().layers;
  const PrecisionPlan precision = plan_precision(c);
  const auto model = divided_gpt(
      c, mesh, {{0, 0, true, false}, {0, 1, false, false}, {layers, layers, false, true}}, {});
  move_module(*model, device);
  stored_weights(*model, precision);
  const auto compute = compute_for(precision, model);
  const GptOptions sizes = model_options(c).gpt;
  const int64_t rows = c.resolve_batches(mesh.size()).micro;
  const at::Tensor ids = at::arange(rows * sizes.context, at::TensorOptions(at::kLong))
                             .remainder(sizes.vocab)
                             .view({rows, sizes.context})
                             .to(device);
  std::vector<int64_t> samples(static_cast<size_t>(rows));
  std::iota(samples.begin(), samples.end(), 0);
  const RandomScope random({static_cast<uint64_t>(c.section<TrainingSection>().seed), 0, samples});
  std::vector<at::Tensor> passed;
  std::vector<double> seconds;
  for (size_t stage = 0; stage < 3; ++stage) {
    const auto inputs = as_stage_inputs(passed);
    seconds.push_back(time_of(
        [&]() -> std::vector<at::Tensor> {
          model->select_stage(stage);
          auto all = inputs;
          all.push_back(ids);
          passed = compute->forward_list(all);
          if (stage < 2) return passed;
          return {model->loss_sum(passed.at(0), ids)};
        },
        device));
  }
  seconds = mean_over_ranks(seconds, mesh.world());
  std::vector<double> costs(static_cast<size_t>(layers), seconds[1]);
  costs.front() += seconds[0];
  costs.back() += seconds[2];
  return costs;
}

// The pipeline of a run, planned when its mesh is there.
class BuiltInPipeline {
 public:
  explicit BuiltInPipeline(const Config& config) : config_(config) {}

  const pipeline::PipelinePlan& on(const DeviceMesh& mesh) {
    if (plan_) return *plan_;
    const auto parallelism = config_.section<ParallelismSection>();
    auto table = schedule_table(config_, mesh.world());
    if (parallelism.partition_method == "measured") costs_ = measured_gpt(config_, mesh);
    plan_ = pipeline::plan_pipeline(
        {.schedule = parallelism.schedule,
         .ranks = mesh.size("pp"),
         .stages_per_rank = static_cast<int>(parallelism.virtual_stages),
         .micro_batches = static_cast<int>(config_.resolve_batches(mesh.size()).accumulation),
         .blocks = config_.section<ModelSection>().layers,
         .counts = parallelism.stages.value_or(std::vector<int64_t>()),
         .costs = costs_,
         .table = std::move(table),
         .same_bits = config_.section<TrainingSection>().reproducible});
    place_zero(config_, plan_->schedule);
    return *plan_;
  }
  std::vector<pipeline::StageBlocks> here(const DeviceMesh& mesh) {
    return stages_here(on(mesh), mesh.coordinate("pp"));
  }
  std::string describe() const {
    return costs_.empty() ? "" : describe_stages(plan_.value().stages, costs_, "blocks");
  }

 private:
  const Config& config_;
  std::optional<pipeline::PipelinePlan> plan_;
  std::vector<double> costs_;  // measured ones
};

}  // namespace

RunParts built_in_parts(const Config& config) {
  const auto model = config.section<ModelSection>();
  RunParts parts;
  parts.open_data = [&config](Run& run) { open_data(run, config); };
  parts.least = [&config] { return least_model(config); };
  const auto divided = std::make_shared<BuiltInPipeline>(config);
  parts.make_model = [&config, divided](const DeviceMesh& mesh, const UnitMade& made) {
    const int pp = mesh.size("pp");
    if (mesh.size("tp") * mesh.size("cp") * pp == 1) return build_model(config, made);
    return divided_gpt(config, mesh,
                       pp > 1 ? divided->here(mesh) : std::vector<pipeline::StageBlocks>(), made);
  };
  if (config.section<ParallelismSection>().pp > 1) {
    parts.computation = [divided](const Run& run) {
      return compute_through_stages(run.mesh, divided->on(run.mesh), run.device, stages_of_model());
    };
    parts.stages = [&config, divided](const DeviceMesh& mesh) {
      GptOptions options = model_options(config).gpt;
      options.stages = divided->here(mesh);
      const GptStages here(options);
      return ModelStages{here.count(),
                         [here](const std::string& name) { return here.stage_of(name); }};
    };
    parts.about_stages = [divided] { return divided->describe(); };
  }
  parts.weight_per_sample = model.type == "gpt" ? model.context : 1;
  parts.loss = [](Run& run, const MicroBatch& micro) {
    return run.model->loss_sum(run.compute->forward(micro.input), micro.target);
  };
  return parts;
}

Run build_run(const Config& config, Group group) {
  return build_run(config, std::move(group), built_in_parts(config));
}

std::shared_ptr<Model> build_model(const Config& config, const UnitMade& unit_made) {
  const auto seed = static_cast<uint64_t>(config.section<TrainingSection>().seed);
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
  move_module(*model, run_device(config));
  return model;
}

}  // namespace trireme
