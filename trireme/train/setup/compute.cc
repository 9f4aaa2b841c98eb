// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/compute.h"

#include <ATen/core/grad_mode.h>

#include "trireme/tensor/autocast.h"

namespace trireme {
namespace {

using Tensors = std::vector<at::Tensor>;

class Plain final : public Compute {
 public:
  explicit Plain(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  Tensors forward_list(const Tensors& inputs) override { return model_->forward_list(inputs); }

 private:
  std::shared_ptr<Model> model_;
};

class Half final : public Compute {
 public:
  Half(std::shared_ptr<Model> model, at::ScalarType dtype)
      : model_(std::move(model)), dtype_(dtype) {}
  Tensors forward_list(const Tensors& inputs) override {
    Tensors half = inputs;
    for (at::Tensor& t : half)
      if (t.defined() && t.is_floating_point()) t = t.to(dtype_);
    return model_->forward_list(half);
  }

 private:
  std::shared_ptr<Model> model_;
  at::ScalarType dtype_;
};

class Autocast final : public Compute {
 public:
  Autocast(std::shared_ptr<Model> model, at::ScalarType dtype)
      : model_(std::move(model)), dtype_(dtype) {}
  Tensors forward_list(const Tensors& inputs) override {
    at::DeviceType device = at::kCPU;
    for (const at::Tensor& t : inputs)
      if (t.defined() && !t.is_cpu()) device = t.device().type();
    AutocastGuard guard(device, dtype_);
    return model_->forward_list(inputs);
  }

 private:
  std::shared_ptr<Model> model_;
  at::ScalarType dtype_;
};

}  // namespace

Compute::~Compute() = default;

std::unique_ptr<Compute> plain_compute(std::shared_ptr<Model> model) {
  return std::make_unique<Plain>(std::move(model));
}

std::unique_ptr<Compute> half_compute(std::shared_ptr<Model> model, at::ScalarType dtype) {
  return std::make_unique<Half>(std::move(model), dtype);
}

std::unique_ptr<Compute> autocast_compute(std::shared_ptr<Model> model, at::ScalarType dtype) {
  return std::make_unique<Autocast>(std::move(model), dtype);
}

void cast_parameters(torch::nn::Module& model, at::ScalarType dtype) {
  at::NoGradGuard no_grad;
  for (auto& p : model.parameters())
    if (p.scalar_type() != dtype) p.set_data(p.detach().to(dtype));
}

}  // namespace trireme
