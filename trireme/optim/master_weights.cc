// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/master_weights.h"

#include <c10/core/GradMode.h>

#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/optim/rules/float32_twins.h"
#include "trireme/tensor/storage_mark.h"

namespace trireme {
namespace {

NamedTensors float32_copies(const NamedTensors& parameters) {
  c10::AutoGradMode no_grad(false);
  detail::check_there("master weights", parameters);
  for (const auto& [name, p] : parameters) {
    const auto type = p.scalar_type(), first = parameters.front().second.scalar_type();
    check<UsageError>((type == at::kHalf || type == at::kBFloat16) && type == first,
                      "master weights: parameter '{}' is {} (the first is {}): all must be float16 "
                      "or all bfloat16",
                      name, c10::toString(type), c10::toString(first));
  }
  NamedTensors copies = detail::float32_twins(parameters, parameters.front().second.options());
  for (size_t i = 0; i < copies.size(); ++i) copies[i].second.copy_(parameters[i].second);
  return copies;
}

// The base class holds the float32 copies: parameters_.
class MasterWeights : public Optimizer {
 public:
  MasterWeights(const NamedTensors& half, const MakeOptimizer& make)
      : MasterWeights(half, float32_copies(half), make) {}
  // `copies` has every name, as `half`.
  MasterWeights(const NamedTensors& half, const NamedTensors& copies, const MakeOptimizer& make)
      : Optimizer(copies, {}), half_(unique_tensors(half)), inner_(make(copies)) {
    check<UsageError>(inner_ != nullptr, "master weights: no optimizer was made");
    mark();
  }

  void step(double lr, double grad_scale) override {
    follow();
    for (size_t i = 0; i < half_.size(); ++i)
      parameters_[i].second.mutable_grad() = half_[i].second.grad();
    inner_->step(lr, grad_scale);
    steps_ = inner_->steps();
    c10::AutoGradMode no_grad(false);
    for (size_t i = 0; i < half_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].second.mutable_grad();
      if (gradient.defined()) half_[i].second.copy_(parameters_[i].second);
      gradient = at::Tensor();  // the bucket's, not ours to keep
    }
  }

  void state(StateVisitor& visitor) override {
    inner_->state(visitor);
    steps_ = inner_->steps();
    for (const auto& [name, master] : parameters_) visitor.tensor("optim.master." + name, master);
    mark();  // a visitor may have written masters: they are newer than what was loaded before
  }

  void zero_grad(bool set_to_none) override { Optimizer::zero_grad(half_, set_to_none); }

 protected:
  void mark() {
    seen_.clear();
    for (const auto& [name, p] : half_) seen_.emplace_back(p);
  }
  // A parameter that was loaded since (torch::load(), set_data()) is newer than its master.
  void follow() {
    c10::AutoGradMode no_grad(false);
    for (size_t i = 0; i < half_.size(); ++i) {
      if (!seen_[i].moved(half_[i].second)) continue;
      parameters_[i].second.copy_(half_[i].second);
      seen_[i] = StorageMark(half_[i].second);
    }
  }

  NamedTensors half_;
  std::vector<StorageMark> seen_;
  std::unique_ptr<Optimizer> inner_;
};

class RoundedWeights final : public MasterWeights {
 public:
  using MasterWeights::MasterWeights;

  void step(double lr, double grad_scale) override {
    {
      c10::AutoGradMode no_grad(false);
      for (size_t i = 0; i < half_.size(); ++i) parameters_[i].second.copy_(half_[i].second);
    }
    MasterWeights::step(lr, grad_scale);
  }
  void state(StateVisitor& visitor) override {
    inner_->state(visitor);
    steps_ = inner_->steps();
  }
};

}  // namespace

std::unique_ptr<Optimizer> with_master_weights(NamedTensors parameters, const MakeOptimizer& make) {
  return std::make_unique<MasterWeights>(std::move(parameters), make);
}

std::unique_ptr<Optimizer> without_master_weights(NamedTensors parameters,
                                                  const MakeOptimizer& make) {
  return std::make_unique<RoundedWeights>(std::move(parameters), make);
}

}  // namespace trireme
