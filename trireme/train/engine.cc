// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine.h"

#include "trireme/base/check.h"
#include "trireme/grad/module_sync.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/precision_parts.h"
#include "trireme/train/saving.h"
#include "trireme/train/step.h"
#include "trireme/train/training_parts.h"

namespace trireme {
namespace {

constexpr const char* kPrefix = "module.";

// Somebody's module, as a run sees a model. Its loss is its owner's affair.
struct ModuleModel final : Model {
  ModuleModel(std::shared_ptr<torch::nn::Module> m, Engine::Forward f)
      : Model("Module"), module(register_module("module", std::move(m))), run(std::move(f)) {}
  at::Tensor forward(const at::Tensor& input) override { return run(input); }
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
  buffers_of(model, &tied);  // which keep theirs
  return tied;
}

}  // namespace

struct Engine::Impl {
  Run run;
  TiedNames tied;     // other names of the module's tensors
  int64_t micro = 0;  // backwards done in this step
  StepReport last;
  LossSum loss;
};

Engine::Engine(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& c,
               Group group)
    : impl_(std::make_unique<Impl>()) {
  Run& run = impl_->run;
  check<UsageError>(c.get_int("zero_optimization.stage") < 3,
                    "{}: zero_optimization.stage is 3, and of a module given as it is nobody "
                    "knows the units that could be whole one after the other: take stage 2, or "
                    "make the network with fully_shard() (shard/fully_sharded.h)",
                    c.origin("zero_optimization.stage"));
  check<UsageError>(!c.get_bool("training.reproducible"),
                    "{}: training.reproducible needs the losses as sums and the data dealt by "
                    "`trireme train`: an engine has neither",
                    c.origin("training.reproducible"));
  check<UsageError>(c.get_string("balance.mode") == "none",
                    "{}: balance.mode is {}, and an engine's batches are its caller's, which it "
                    "cannot make larger or smaller: `trireme train` balances",
                    c.origin("balance.mode"), c.get_string("balance.mode"));
  check<UsageError>(c.get_string("device") != "cuda",
                    "{}: device is cuda; this version trains on the CPU", c.origin("device"));
  run.group = group;
  run.batches = c.resolve_batches(group.size());
  run.seed = c.get_int("training.seed");
  run.steps = std::max<int64_t>(1, c.get_int("training.steps"));
  const PrecisionPlan precision = plan_precision(c);
  check_precision(precision, at::kCPU);
  run.precision = describe(precision);
  ZeroSetup zero = set_up_zero(c, group, precision);
  run.sharding = describe(zero, c);
  run.layout = layout_of(zero);
  run.model = std::make_shared<ModuleModel>(std::move(module), std::move(forward));
  run.weights = without_prefix(stored_weights(*run.model, precision));
  impl_->tied = tied_names(*run.model);
  verify_same(group, run.weights, "parameter", impl_->tied);
  // Losses are means of micro-batches: a step is the sum of so many, divided by their number.
  complete_training(run, c, zero, precision, run.batches.accumulation * run.batches.dp,
                    impl_->tied);
  impl_->last.lr = run.schedule->lr_at(0);
}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

at::Tensor Engine::forward(const at::Tensor& input) { return impl_->run.compute->forward(input); }

void Engine::backward(const at::Tensor& loss) {
  Run& run = impl_->run;
  check<UsageError>(loss.defined() && loss.numel() == 1 && loss.requires_grad(),
                    "Engine::backward: the loss is no scalar that depends on the module");
  check<UsageError>(!is_gradient_accumulation_boundary(),
                    "Engine::backward: {} micro-batches are the whole step: call step() first",
                    impl_->micro);
  if (impl_->micro == 0) {
    impl_->loss = {};
    run.gradients->open(static_cast<int>(run.batches.accumulation));
  }
  run.gradients->begin_micro_batch(static_cast<int>(impl_->micro));
  impl_->loss.sum += loss.item<double>();
  impl_->loss.weight += 1;
  run.gradients->tell(impl_->loss, 0);
  told_to_all(run, [&] { run.scaling->scale(loss.reshape({}).to(at::kFloat)).backward(); });
  ++impl_->micro;
}

void Engine::step() {
  check<UsageError>(impl_->micro > 0, "Engine::step: no backward came before it");
  if (!is_gradient_accumulation_boundary()) return;
  impl_->micro = 0;
  impl_->last = finish_step(impl_->run);
}

bool Engine::is_gradient_accumulation_boundary() const {
  return impl_->micro == impl_->run.batches.accumulation;
}
int64_t Engine::global_steps() const { return impl_->run.step; }
int64_t Engine::skipped_steps() const { return impl_->run.scaling->skipped(); }
double Engine::get_lr() const { return impl_->last.lr; }
double Engine::get_global_grad_norm() const { return impl_->last.grad_norm; }
double Engine::loss_scale() const {
  const double scale = impl_->run.scaling->loss_scale();
  return scale > 0 ? scale : 1;
}
double Engine::loss() const { return impl_->last.loss; }
int64_t Engine::train_micro_batch_size_per_gpu() const { return impl_->run.batches.micro; }
int64_t Engine::gradient_accumulation_steps() const { return impl_->run.batches.accumulation; }
int64_t Engine::train_batch_size() const { return impl_->run.batches.train; }
const Group& Engine::group() const { return impl_->run.group; }

std::string Engine::save_checkpoint(const std::string& folder, int keep) {
  check<UsageError>(impl_->micro == 0,
                    "Engine::save_checkpoint: {} micro-batches of a step are done: save between "
                    "steps",
                    impl_->micro);
  const std::string path = save_run(impl_->run, folder, keep);
  impl_->run.group.barrier();
  return path;
}

int64_t Engine::load_checkpoint(const std::string& path) {
  load_run(impl_->run, path, impl_->tied);
  return impl_->run.step;
}

}  // namespace trireme
