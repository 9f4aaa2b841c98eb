// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/loss_rehearsal.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/data/device_batches.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/build/device_rehearsal.h"
#include "trireme/train/build/precision_parts.h"

namespace trireme {
namespace {

/// While it lives, pieces run as in an update; then the model's statistics are what they were.
class AsInAnUpdate {
 public:
  explicit AsInAnUpdate(Trainer::Impl& trainer)
      : network_(trainer.network), buffers_(buffers_of(*trainer.parts.front()->model)) {
    for (const auto& [name, b] : buffers_) before_.push_back(b.detach().clone());
    network_.training = true;
  }
  ~AsInAnUpdate() {
    network_.training = false;
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < before_.size(); ++i) buffers_[i].second.detach().copy_(before_[i]);
  }
  AsInAnUpdate(const AsInAnUpdate&) = delete;

 private:
  Network::Impl& network_;
  const NamedTensors buffers_;
  std::vector<at::Tensor> before_;
};

std::vector<at::Tensor> terms_of(Trainer::Impl& trainer, const MicroBatch& micro) {
  Trainer::Impl::Part& part = *trainer.parts.front();
  return part.model->within(*part.run.compute, [&] {
    std::vector<at::Tensor> values;
    for (const auto& [name, value] : trainer.program.loss(trainer.net, micro))
      values.push_back(value);
    return values;
  });
}

void compute_once(Trainer::Impl& trainer) {
  const Run& run = trainer.first();
  const CurrentDevice current(run.device);
  std::vector<int64_t> samples{0};
  if (run.train_data->size() > 1) samples.push_back(1);  // of one alone there is no variance
  const MicroBatch micro = on_device(run.train_data->get(samples), run.device);
  const RandomScope random({static_cast<uint64_t>(run.seed), 0, samples});
  const AsInAnUpdate scope(trainer);
  at::Tensor sum;
  for (const at::Tensor& term : terms_of(trainer, micro))
    if (term.requires_grad()) sum = sum.defined() ? sum.add(term) : term;
  if (!sum.defined() || run.collective_forward) return;
  std::vector<at::Tensor> trained;
  for (const auto& [name, p] : run.gradients->parameters()) trained.push_back(p);
  torch::autograd::grad({sum}, trained, {}, /*retain_graph=*/false, /*create_graph=*/false,
                        /*allow_unused=*/true);
}

}  // namespace

void rehearse_loss(Trainer::Impl& trainer) {
  const Run& run = trainer.first();
  if (trainer.parts.size() > 1 || trainer.stages || !run.train_data) return;
  rehearse(run.device, run.world(), named_parameters(*trainer.parts.front()->model),
           [&] { compute_once(trainer); });
}

}  // namespace trireme
