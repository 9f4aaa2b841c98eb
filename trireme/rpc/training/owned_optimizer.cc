// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/training/owned_optimizer.h"

#include <torch/optim/optimizer.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/torch_optimizer_state.h"
#include "trireme/rpc/autograd/local_context.h"

namespace trireme::rpc {
namespace {

// Handles have a grad() of their own, and a version of their own: who saved the parameter in a
// forward does not take a step for a change in place.
NamedTensors handles_of(const NamedTensors& parameters) {
  NamedTensors handles;
  for (const auto& [name, parameter] : parameters) {
    check<UsageError>(
        parameter.defined() && parameter.is_leaf() && parameter.requires_grad(),
        "parameter '{}' of an rpc::OwnedOptimizer is no leaf that requires a gradient", name);
    handles.emplace_back(name, parameter.variable_data().requires_grad_());
  }
  return handles;
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

std::shared_ptr<autograd::LocalContext> context() {
  auto context = std::dynamic_pointer_cast<autograd::LocalContext>(rpc::detail::current_context());
  check<UsageError>(context != nullptr,
                    "an optimizer of a worker steps within an rpc::autograd::Context, whose "
                    "gradients it takes");
  return context;
}

}  // namespace

/// Gradients of a context, as grad() of the handles, for a while.
struct OwnedOptimizer::Gradients {
  explicit Gradients(const OwnedOptimizer& owned) : handles(owned.handles_) {
    const auto from = context();
    for (size_t i = 0; i < handles.size(); ++i)
      at::Tensor(handles[i].second).mutable_grad() = from->gradient(owned.parameters_[i].second);
  }
  ~Gradients() {
    for (const auto& [name, handle] : handles) at::Tensor(handle).mutable_grad() = at::Tensor();
  }
  const NamedTensors& handles;
};

OwnedOptimizer::OwnedOptimizer(const NamedTensors& parameters, const Make& make)
    : parameters_(parameters), handles_(handles_of(parameters)), ours_(make(handles_)) {
  check<UsageError>(ours_ != nullptr, "an rpc::OwnedOptimizer was made without an optimizer");
}

OwnedOptimizer::OwnedOptimizer(const NamedTensors& parameters, const MakeTorch& make)
    : parameters_(parameters),
      handles_(handles_of(parameters)),
      torchs_(make(tensors_of(handles_))) {
  check<UsageError>(torchs_ != nullptr, "an rpc::OwnedOptimizer was made without an optimizer");
}

OwnedOptimizer::~OwnedOptimizer() = default;

int64_t OwnedOptimizer::steps() const {
  std::lock_guard lock(mutex_);
  return steps_;
}

void OwnedOptimizer::state(StateVisitor& visitor) {
  std::lock_guard lock(mutex_);
  if (ours_)
    ours_->state(visitor);
  else
    visit_torch_optimizer(*torchs_, handles_, visitor);
  visitor.value("optim.owned_steps", steps_);
}

double OwnedOptimizer::norm() const {
  std::lock_guard lock(mutex_);
  const Gradients gradients(*this);
  return grad_norm(handles_).norm;
}

int64_t OwnedOptimizer::step(double lr, double grad_scale) {
  std::lock_guard lock(mutex_);
  const Gradients gradients(*this);
  if (ours_) {
    ours_->step(lr, grad_scale);
  } else {
    const at::NoGradGuard no_grad;
    for (auto& group : torchs_->param_groups()) group.options().set_lr(lr);
    for (const auto& [name, handle] : handles_) {
      at::Tensor& gradient = at::Tensor(handle).mutable_grad();
      if (gradient.defined() && grad_scale != 1) gradient = gradient * grad_scale;
    }
    torchs_->step();
  }
  return ++steps_;
}

Offer offer(std::shared_ptr<OwnedOptimizer> optimizer) {
  check<UsageError>(optimizer != nullptr, "rpc::offer was given no optimizer");
  return offer<detail::OptimizerNorm, detail::OptimizerStep>(std::move(optimizer));
}

}  // namespace trireme::rpc
