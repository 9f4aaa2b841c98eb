// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/parameter_pager.h"

#include <utility>

#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

class PagedOptimizer final : public Optimizer {
 public:
  PagedOptimizer(NamedTensors parameters, const MakeOptimizer& make,
                 std::shared_ptr<ParameterPager> pager)
      : pager_(std::move(pager)) {
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
    while_held(pager_.get(), 0, parameters_.size(), changes, body);
  }
  std::shared_ptr<ParameterPager> pager_;
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace

ParameterPager::~ParameterPager() = default;

std::unique_ptr<Optimizer> paged_optimizer(NamedTensors parameters, const MakeOptimizer& make,
                                           std::shared_ptr<ParameterPager> pager) {
  return std::make_unique<PagedOptimizer>(std::move(parameters), make, std::move(pager));
}

}  // namespace trireme
