// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/parameter_home.h"

#include <utility>

#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

class HeldOptimizer final : public Optimizer {
 public:
  HeldOptimizer(NamedTensors parameters, const MakeOptimizer& make,
                std::shared_ptr<ParameterHome> home)
      : home_(std::move(home)) {
    parameters_ = unique_tensors(parameters);
    table_ = ParameterTable(parameters_);
    groups_.push_back({});
    held(false, [&] { inner_ = make(std::move(parameters)); });
  }
  void step(double lr, double grad_scale) override {
    held(true, [&] { inner_->step(lr, grad_scale); });
    steps_ = inner_->steps();
  }
  void state(StateVisitor& visitor) override {
    inner_->state(visitor);
    steps_ = inner_->steps();
  }
  void zero_grad(bool set_to_none) override { inner_->zero_grad(set_to_none); }

 private:
  template <class Body>
  void held(bool changes, Body&& body) {
    while_held(home_.get(), 0, parameters_.size(), changes, body);
  }
  std::shared_ptr<ParameterHome> home_;
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace

ParameterHome::~ParameterHome() = default;

std::unique_ptr<Optimizer> held_optimizer(NamedTensors parameters, const MakeOptimizer& make,
                                          std::shared_ptr<ParameterHome> home) {
  return std::make_unique<HeldOptimizer>(std::move(parameters), make, std::move(home));
}

}  // namespace trireme
