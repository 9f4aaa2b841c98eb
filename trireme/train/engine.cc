// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine.h"

#include <ATen/core/grad_mode.h>

#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/config/engine_keys.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/grad/module_sync.h"
#include "trireme/layers/dropout.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/tensor/host_scalars.h"
#include "trireme/tensor/layer_watch.h"
#include "trireme/tensor/missing_operator.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/gradients/gradient_noise.h"
#include "trireme/train/model_axes/begin_alike.h"
#include "trireme/train/model_axes/model_group.h"
#include "trireme/train/report/engine_report.h"
#include "trireme/train/saving.h"
#include "trireme/train/step.h"

namespace trireme {
namespace {

constexpr const char* kPrefix = "module.";

// Adapts the user's module to a run's Model. The caller computes its loss.
struct ModuleModel final : Model {
  ModuleModel(std::shared_ptr<torch::nn::Module> m, Engine::Forward f)
      : Model("Module"), module(register_module("module", std::move(m))), run(std::move(f)) {}
  at::Tensor forward(const at::Tensor& input) override { return run({input}).at(0); }
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override {
    return run(inputs);
  }
  at::Tensor loss_sum(const at::Tensor&, const at::Tensor&) override {
    fail<UsageError>("an engine's loss is computed by its caller");
  }
  std::shared_ptr<torch::nn::Module> module;
  Engine::Forward run;
};

void strip_prefix(std::string& name) {
  if (name.rfind(kPrefix, 0) == 0) name = name.substr(std::string(kPrefix).size());
}

NamedTensors without_prefix(NamedTensors list) {
  for (auto& [name, t] : list) strip_prefix(name);
  return list;
}

TiedNames tied_names(const Model& model) {
  TiedNames tied;
  named_parameters(model, &tied);
  for (TiedName& t : tied) {
    strip_prefix(t.name);
    strip_prefix(t.first);
  }
  buffers_of(model, &tied);  // buffers keep their dtypes
  return tied;
}

// The configuration may only repeat the group's properties.
void check_group(const Config& c, const Group& group) {
  const auto comm = c.section<CommSection>();
  check<UsageError>(c.is_default("comm.backend") || comm.backend == group.backend(),
                    "{}: comm.backend is {}, and the group passed to initialize() is of {}: set it "
                    "in init_process_group (InitOptions)",
                    c.origin("comm.backend"), comm.backend, group.backend());
  const double timeout = std::chrono::duration<double>(group.timeout()).count();
  check<UsageError>(c.is_default("comm.timeout_s") || comm.timeout_s == timeout,
                    "{}: comm.timeout_s is {:g}, and the group passed to initialize() waits {:g} "
                    "s: set it in init_process_group (InitOptions)",
                    c.origin("comm.timeout_s"), comm.timeout_s, timeout);
}

bool has_dropout(torch::nn::Module& model) {
  bool any = false;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    any = any || item.value()->as<DropoutImpl>();
  if (any) name_dropouts(model);
  return any;
}

// Another mesh would add gradients over the wrong ranks.
void check_mesh(const Config& c, const DeviceMesh& mesh) {
  check<UsageError>(static_cast<bool>(mesh),
                    "initialize(): the mesh is empty: make it with "
                    "mesh_of(config, world)");
  const Degrees degrees = c.resolve_degrees(mesh.world().size());
  const Sharding sharding = c.resolve_sharding(mesh.world().size());
  const MeshShape due(mesh.world().size(), parallel_axes({.dp_replicate = sharding.dp_replicate,
                                                          .dp_shard = sharding.dp_shard,
                                                          .cp = degrees.cp,
                                                          .tp = degrees.tp,
                                                          .pp = degrees.pp}));
  check<UsageError>(mesh.shape().describe() == due.describe(),
                    "initialize(): the mesh is {}, and the configuration says {}: make it with "
                    "mesh_of(config, world)",
                    mesh.shape().describe(), due.describe());
}

}  // namespace

struct Engine::Impl {
  Run run;
  TiedNames tied;  // other names of the module's tensors
  std::optional<EngineReport> report;
  std::string folder;  // checkpoint.folder
  int keep = 0;
  bool async = false;
  std::unique_ptr<AsyncSaver> saver;  // of saver_folder; null: nothing was saved so yet
  std::string saver_folder;
  int64_t micro = 0;   // backwards done in this step
  bool begun = false;  // the next micro-batch has begun
  bool drops = false;  // the module has dropout of ours, and ranks hold parts of its layers
  bool inputs_compared = false;  // over those ranks
  StepReport last;
  LossSum loss;
  HostScalars losses;                 // of the step's micro-batches
  std::unique_ptr<LayerWatch> first;  // of the first micro-batch on a device; then null

  /// Saves the step while training goes on; returns the path that it will have.
  std::string save_behind(const std::string& where, int stays);

  /// What a group of the mesh says of one of its ranks is told to the other groups.
  void heard_by_all(const std::function<void()>& computation) try {
    computation();
  } catch (const Error& error) {
    pass_on(run, error);
    throw;
  }
  /// So is a failure of this rank's own computation.
  void told(const std::function<void()>& computation) {
    heard_by_all([&] { abort_group_on_error(run, computation); });
  }
  /// f(); in the first micro-batch, an operator that the device lacks is named with its layer.
  template <class F>
  auto naming_layer(F&& f) -> decltype(f()) {
    if (!first) return naming_missing_operator(run.device, f);
    const LayerWatch::Scope scope(*first);
    try {
      return f();
    } catch (const c10::NotImplementedError& error) {
      refuse_missing_operator(run.device, error, first->where());
      throw;
    }
  }
  bool whole() const { return micro == run.batches.accumulation; }
  /// Dropout of ranks that hold parts of the same layers drops the same elements, by key. Null:
  /// there is none, or the caller has set a scope.
  std::unique_ptr<RandomScope> scope_for(const std::vector<at::Tensor>& inputs) const {
    if (!drops || RandomScope::current()) return nullptr;
    const int64_t rows = inputs.empty() || inputs[0].dim() == 0 ? 1 : inputs[0].size(0);
    const Group dp = run.data_parallel();
    std::vector<int64_t> samples(static_cast<size_t>(rows));
    std::iota(samples.begin(), samples.end(), (micro * dp.size() + dp.rank()) * rows);
    return std::make_unique<RandomScope>(
        RandomContext{static_cast<uint64_t>(run.seed), run.step, std::move(samples)});
  }
  /// Called once before each backward; at stage 3 before its forward, where the round begins.
  void begin() {
    if (begun) return;
    begun = true;
    if (micro == 0) {
      loss = {};
      losses.clear();
      run.gradients->open(static_cast<int>(run.batches.accumulation));
    }
    run.gradients->begin_backward(0, static_cast<int>(micro));
  }
};

Engine::Engine(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& c,
               Group group)
    : impl_(std::make_unique<Impl>()) {
  check_engine_keys(c);
  const int64_t tp = c.section<ParallelismSection>().tp;
  check<UsageError>(tp == 1,
                    "{}: parallelism.tp is {}, and initialize() was given a group: give it the "
                    "mesh with which the module's layers were made, mesh_of(config, group)",
                    c.origin("parallelism.tp"), tp);
  build(std::move(module), std::move(forward), c, std::move(group), {});
}

Engine::Engine(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& c,
               const DeviceMesh& mesh)
    : impl_(std::make_unique<Impl>()) {
  check_engine_keys(c);
  check_mesh(c, mesh);
  build(std::move(module), std::move(forward), c, mesh.world(), mesh);
}

void Engine::build(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& c,
                   Group group, const DeviceMesh& mesh) {
  check_group(c, group);
  const Batches batches = c.resolve_batches(group.size());
  auto model = std::make_shared<ModuleModel>(module, std::move(forward));
  impl_->tied = tied_names(*model);
  RunParts parts;
  parts.mesh = mesh;
  parts.whole = std::move(module);
  parts.make_model = [&](const DeviceMesh&, const UnitMade&) { return model; };
  parts.names = without_prefix;
  parts.tied = impl_->tied;
  // Losses are means over micro-batches: a step adds them and divides by their number.
  parts.weight_of_step = batches.accumulation * batches.dp;
  parts.default_steps = 1;
  parts.init = true;
  if (mesh)
    or_all_fail(mesh, [&] { impl_->run = build_run(c, group, parts); });
  else
    impl_->run = build_run(c, group, parts);
  Run& run = impl_->run;
  if (is_divided(run.mesh)) impl_->drops = has_dropout(*model);
  if (!run.device.is_cpu())
    impl_->first = std::make_unique<LayerWatch>(without_prefix(named_parameters(*model)));
  impl_->last.lr = run.lr->lr_at(0);
  impl_->report.emplace(c, run);
  const auto checkpoint = c.section<CheckpointSection>();
  impl_->folder = checkpoint.folder.value_or("");
  impl_->keep = static_cast<int>(checkpoint.keep);
  impl_->async = checkpoint.async;
}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

std::vector<at::Tensor> Engine::forward_list(const std::vector<at::Tensor>& inputs) {
  const at::Device device = impl_->run.device;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& t = inputs[i];
    // LibTorch takes numbers of the CPU everywhere.
    check<UsageError>(!t.defined() || t.device() == device || (t.is_cpu() && t.dim() == 0),
                      "Engine::forward: input {} is on {}, and the module is on {}: bring it there "
                      "with to(engine.device())",
                      i, device_text(t.device()), device_text(device));
  }
  const CurrentDevice current(device);
  if (impl_->run.collective_forward && at::GradMode::is_enabled() && !impl_->whole())
    impl_->begin();
  if (!is_divided(impl_->run.mesh))
    return impl_->naming_layer([&] { return impl_->run.compute->forward_list(inputs); });
  // Ranks that hold parts of the same layers meet in a forward: one that fails tells the others.
  std::vector<at::Tensor> outputs;
  impl_->told([&] {
    if (!std::exchange(impl_->inputs_compared, true))
      check_same_inputs(inputs, "Engine::forward", impl_->run.mesh.group("tp"));
    const std::unique_ptr<RandomScope> random = impl_->scope_for(inputs);
    outputs = impl_->naming_layer([&] { return impl_->run.compute->forward_list(inputs); });
  });
  return outputs;
}

at::Tensor Engine::only_output(std::vector<at::Tensor> outputs) {
  check<UsageError>(outputs.size() == 1,
                    "Engine::forward: the module returned {} tensors: call forward_list()",
                    outputs.size());
  return std::move(outputs[0]);
}

void Engine::backward(const at::Tensor& loss) {
  Run& run = impl_->run;
  const CurrentDevice current(run.device);
  check<UsageError>(loss.defined() && loss.numel() == 1 && loss.requires_grad(),
                    "Engine::backward: the loss is not a scalar that depends on the module");
  check<UsageError>(!is_gradient_accumulation_boundary(),
                    "Engine::backward: {} micro-batches complete the step: call step() first",
                    impl_->micro);
  impl_->begin();
  impl_->losses.add(loss);
  impl_->loss.weight += 1;
  // A device is waited for once a step, before what may send the sum with the last bucket.
  if (impl_->micro + 1 == run.batches.accumulation) {
    const auto& all = impl_->losses.read();
    impl_->loss.sum = std::accumulate(all.begin(), all.end(), 0.0);
  }
  run.gradients->tell(impl_->loss, 0);
  impl_->told([&] {
    impl_->naming_layer([&] { run.scaling->scale(loss.reshape({}).to(at::kFloat)).backward(); });
  });
  impl_->first.reset();
  for (const auto& feature : run.features)
    feature->micro_batch_done(run.gradients->parameters(), 1);
  impl_->begun = false;
  ++impl_->micro;
}

void Engine::step() {
  check<UsageError>(impl_->micro > 0, "Engine::step: backward was not called before it");
  if (!is_gradient_accumulation_boundary()) return;
  impl_->micro = 0;
  const CurrentDevice current(impl_->run.device);
  impl_->heard_by_all([&] { impl_->last = finish_step(impl_->run); });
  abort_group_on_error(impl_->run, [&] { impl_->report->step(impl_->run, impl_->last); });
  if (marks_progress()) mark_progress(Activity::step, impl_->run.step + 1);
}

bool Engine::is_gradient_accumulation_boundary() const { return impl_->whole(); }
int64_t Engine::global_steps() const { return impl_->run.step; }
int64_t Engine::skipped_steps() const { return impl_->run.scaling->skipped(); }
double Engine::get_lr() const { return impl_->last.lr; }
double Engine::get_global_grad_norm() const { return impl_->last.grad_norm; }
double Engine::loss_scale() const {
  const double scale = impl_->run.scaling->loss_scale();
  return scale > 0 ? scale : 1;
}
double Engine::loss() const { return impl_->last.loss; }
double Engine::gradient_noise_scale() const {
  const auto* noise = impl_->run.find<GradientNoise>();
  return noise ? noise->noise().samples() : std::numeric_limits<double>::quiet_NaN();
}
int64_t Engine::train_micro_batch_size_per_gpu() const { return impl_->run.batches.micro; }
int64_t Engine::gradient_accumulation_steps() const { return impl_->run.batches.accumulation; }
int64_t Engine::train_batch_size() const { return impl_->run.batches.train; }
at::Device Engine::device() const { return impl_->run.device; }
Group Engine::group() const { return impl_->run.world(); }
Group Engine::data_parallel() const { return impl_->run.data_parallel(); }

std::string Engine::save_checkpoint(const std::string& folder, std::optional<int> keep) {
  const std::string& where = folder.empty() ? impl_->folder : folder;
  check<UsageError>(!where.empty(),
                    "Engine::save_checkpoint: no folder: give one, or set checkpoint.folder");
  check<UsageError>(impl_->micro == 0,
                    "Engine::save_checkpoint: {} micro-batches of a step are done: save between "
                    "steps",
                    impl_->micro);
  const CurrentDevice current(impl_->run.device);
  const ActivityScope activity(Activity::save, impl_->run.step);
  if (impl_->async) return impl_->save_behind(where, keep.value_or(impl_->keep));
  const std::string path = save_run(impl_->run, where, keep.value_or(impl_->keep));
  impl_->run.world().barrier();
  return path;
}

std::string Engine::Impl::save_behind(const std::string& where, int stays) {
  if (saver && saver_folder != where) {
    saver->wait();
    saver.reset();
  }
  if (!saver) saver = std::make_unique<AsyncSaver>(where, run.world());
  saver_folder = where;
  save_run(run, *saver, stays);
  return where + "/" + step_folder_name(run.step);
}

void Engine::wait_for_checkpoint() {
  if (impl_->saver) impl_->saver->wait();
}

int64_t Engine::load_checkpoint(const std::string& path) {
  wait_for_checkpoint();
  const CurrentDevice current(impl_->run.device);
  const ActivityScope activity(Activity::load, impl_->run.step);
  const CheckpointInfo info = load_run(impl_->run, path, impl_->tied);
  if (group().rank() == 0)
    for (const std::string& note : info.notes) log_info("{}: {}", info.folder, note);
  impl_->report->resumed();
  return impl_->run.step;
}

void Engine::gathered(const std::function<void()>& read) {
  std::optional<FullySharded::Gathered> whole;
  if (auto* sharded = dynamic_cast<FullySharded*>(impl_->run.gradients->sharded()))
    whole.emplace(*sharded);
  read();
}

}  // namespace trireme
