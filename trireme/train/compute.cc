// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/compute.h"

#include <ATen/core/grad_mode.h>

#include "trireme/tensor/autocast.h"

namespace trireme {
namespace {

class Plain final : public Compute {
 public:
  explicit Plain(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  at::Tensor forward(const at::Tensor& input) override { return model_->forward(input); }

 private:
  std::shared_ptr<Model> model_;
};

class Half final : public Compute {
 public:
  Half(std::shared_ptr<Model> model, at::ScalarType dtype)
      : model_(std::move(model)), dtype_(dtype) {}
  at::Tensor forward(const at::Tensor& input) override {
    return model_->forward(input.is_floating_point() ? input.to(dtype_) : input);
  }

 private:
  std::shared_ptr<Model> model_;
  at::ScalarType dtype_;
};

class Autocast final : public Compute {
 public:
  Autocast(std::shared_ptr<Model> model, at::ScalarType dtype)
      : model_(std::move(model)), dtype_(dtype) {}
  at::Tensor forward(const at::Tensor& input) override {
    AutocastGuard guard(input.device().type(), dtype_);
    return model_->forward(input);
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
