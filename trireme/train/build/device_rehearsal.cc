// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/device_rehearsal.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <numeric>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/training.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/optim/clip.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/finite.h"
#include "trireme/tensor/layer_watch.h"
#include "trireme/tensor/missing_operator.h"
#include "trireme/tensor/module_device.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/build/complete_run.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/setup/compute.h"

namespace trireme {
namespace {

void train_once(const LeastModel& least, const PrecisionPlan& precision, at::Device device,
                uint64_t seed) {
  const at::Tensor input = least.input.to(device), target = least.target.to(device);
  std::vector<int64_t> samples(static_cast<size_t>(input.size(0)));
  std::iota(samples.begin(), samples.end(), 0);
  const RandomScope random({seed, 0, samples});
  const auto compute = compute_for(precision, least.model);
  least.model->loss_sum(compute->forward(input), target).backward();
}

void look_at_gradients(const NamedTensors& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, p] : parameters) gradients.push_back(p.grad());
  first_not_finite(gradients);
  grad_norm(parameters, 1);
}

void step_once(const Config& c, const PrecisionPlan& precision, at::Device device) {
  NamedTensors parameters;
  for (const auto& sizes : {std::vector<int64_t>{4, 4}, std::vector<int64_t>{4}}) {
    at::Tensor p = at::ones(sizes, at::TensorOptions(precision.stored).device(device));
    p.set_requires_grad(true);
    p.mutable_grad() = at::zeros_like(p);
    parameters.emplace_back("p" + std::to_string(sizes.size()), p);
  }
  optimizer_for(precision, parameters, [&](NamedTensors p) {
    return plain_optimizer(c, p);
  })->step(1e-3, 1);
}

/// body() with the sentence in `said` if the device lacks an operator.
void ask(std::string& said, at::Device device, const std::function<std::string()>& who_needs,
         const std::function<void()>& body) {
  if (!said.empty()) return;
  try {
    body();
  } catch (const c10::NotImplementedError& error) {
    said = missing_operator_text(device, error, who_needs());
  } catch (const Error& error) {
    if (is_fact_of_the_group(error)) throw;
  } catch (const std::exception&) {  // memory, perhaps: the run will say it in its own words
  }
}

void all_say(const std::string& said, const Group& group) {
  for (const std::string& text : all_gather_object(group, said))
    check<UsageError>(text.empty(), "{}", text);
}

}  // namespace

void rehearse(at::Device device, const Group& group, const NamedTensors& parameters,
              const std::function<void()>& computation) {
  if (device.is_cpu()) return;
  std::string said;
  LayerWatch watch(parameters);
  const auto layer = [&] { return watch.where(); };
  ask(said, device, layer, [&] {
    const LayerWatch::Scope scope(watch);
    computation();
  });
  all_say(said, group);
}

void rehearse_step(const Config& c, const PrecisionPlan& precision, at::Device device,
                   const Group& group, const std::function<LeastModel()>& least) {
  if (device.is_cpu()) return;
  std::string said;
  if (least) {
    LeastModel small;
    NamedTensors parameters;
    std::optional<LayerWatch> watch;
    const auto layer = [&] { return watch ? watch->where() : "the model"; };
    ask(said, device, layer, [&] {
      small = least();
      move_module(*small.model, device);
      stored_weights(*small.model, precision);
      parameters = named_parameters(*small.model);
      const LayerWatch::Scope scope(watch.emplace(parameters));
      train_once(small, precision, device,
                 static_cast<uint64_t>(c.section<TrainingSection>().seed));
    });
    const auto norm = [] { return "the norm of gradients"; };
    ask(said, device, norm, [&] { look_at_gradients(parameters); });
  }
  // Elsewhere it is the CPU that steps.
  if (!c.applies("zero_optimization.offload_optimizer.device") ||
      c.section<OffloadSection>().optimizer.device == "none")
    ask(
        said, device, [&] { return "the optimizer " + c.section<OptimizerSection>().type; },
        [&] { step_once(c, precision, device); });
  all_say(said, group);
}

}  // namespace trireme
