// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/host_optimizer.h"

#include <c10/core/GradMode.h>

#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/optim/rules/float32_twins.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/storage_mark.h"

namespace trireme {
namespace {

NamedTensors host_twins(const NamedTensors& parameters) {
  detail::check_there("host optimizer", parameters);
  const auto& [first_name, first] = parameters.front();
  for (const auto& [name, p] : parameters) {
    const auto type = p.scalar_type();
    check<UsageError>(type == at::kFloat || type == at::kHalf || type == at::kBFloat16,
                      "host optimizer: parameter '{}' is {}: float32, float16 and bfloat16 can be "
                      "stepped in host memory",
                      name, c10::toString(type));
    check<UsageError>(type == first.scalar_type() && p.device() == first.device(),
                      "host optimizer: parameter '{}' is {} on {}, but '{}' is {} on {}: all must "
                      "be of one dtype, on one device",
                      name, c10::toString(type), p.device().str(), first_name,
                      c10::toString(first.scalar_type()), first.device().str());
  }
  return detail::float32_twins(
      parameters, host_buffer({detail::twins_numel(parameters)}, at::kFloat, first.device()));
}

// The base class holds the twins: parameters_.
class HostOptimizer final : public Optimizer {
 public:
  HostOptimizer(const NamedTensors& parameters, const MakeOptimizer& make)
      : HostOptimizer(parameters, host_twins(parameters), make) {}
  // `twins` has every name, as `parameters`.
  HostOptimizer(const NamedTensors& parameters, const NamedTensors& twins,
                const MakeOptimizer& make)
      : Optimizer(twins, {}), theirs_(unique_tensors(parameters)) {
    seen_.resize(theirs_.size());
    gradients_.resize(theirs_.size());
    for (size_t i = 0; i < theirs_.size(); ++i) {
      marks_.emplace_back(theirs_[i].second);
      fetch(i);
    }
    inner_ = make(twins);
    check<UsageError>(inner_ != nullptr, "host optimizer: no optimizer was made");
  }

  void step(double lr, double grad_scale) override {
    check_gradients();
    {
      c10::AutoGradMode no_grad(false);
      for (size_t i = 0; i < theirs_.size(); ++i) {
        // A master is newer than its parameter, unless that was loaded since.
        if (is_half() ? marks_[i].moved(theirs_[i].second)
                      : Seen::of(theirs_[i].second) != seen_[i])
          fetch(i);
        parameters_[i].second.mutable_grad() = gradient(i);
      }
    }
    inner_->step(lr, grad_scale);
    steps_ = inner_->steps();
    c10::AutoGradMode no_grad(false);
    for (size_t i = 0; i < theirs_.size(); ++i) {
      at::Tensor& g = parameters_[i].second.mutable_grad();
      if (!g.defined()) continue;
      g = at::Tensor();
      theirs_[i].second.copy_(parameters_[i].second);
      seen_[i] = Seen::of(theirs_[i].second);
    }
  }

  // A visitor may write: a float32 parameter that is loaded is newer than its twin all the same.
  void state(StateVisitor& visitor) override {
    inner_->state(visitor);
    steps_ = inner_->steps();
    if (!is_half()) return;
    for (const auto& [name, master] : parameters_) visitor.tensor("optim.master." + name, master);
    for (size_t i = 0; i < theirs_.size(); ++i) marks_[i] = StorageMark(theirs_[i].second);
  }

  void zero_grad(bool set_to_none) override { Optimizer::zero_grad(theirs_, set_to_none); }

 private:
  /// What a parameter was when its twin was equal to it.
  struct Seen {
    const void* data = nullptr;
    int64_t version = -1;
    static Seen of(const at::Tensor& p) { return {memory_of(p), p._version()}; }
    bool operator!=(const Seen& o) const { return data != o.data || version != o.version; }
  };

  bool is_half() const { return theirs_.front().second.scalar_type() != at::kFloat; }

  void fetch(size_t i) {
    c10::AutoGradMode no_grad(false);
    parameters_[i].second.copy_(theirs_[i].second);
    seen_[i] = Seen::of(theirs_[i].second);
    marks_[i] = StorageMark(theirs_[i].second);
  }

  void check_gradients() const {
    for (const auto& [name, p] : theirs_) {
      const at::Tensor& g = p.grad();
      if (!g.defined()) continue;
      check<UsageError>(
          g.layout() == at::kStrided && g.sizes() == p.sizes() && g.device() == p.device(),
          "host optimizer: the gradient of '{}' is {}, {} elements on {}, the "
          "parameter {} on {}: a dense gradient of the parameter's shape and device "
          "is needed",
          name, g.layout() == at::kStrided ? "dense" : "sparse", g.numel(), g.device().str(),
          p.numel(), p.device().str());
    }
  }

  /// In host memory; undefined where there is none.
  at::Tensor gradient(size_t i) {
    const at::Tensor& g = theirs_[i].second.grad();
    if (!g.defined() || g.is_cpu()) return g;
    at::Tensor& mine = gradients_[i];
    if (!mine.defined() || mine.scalar_type() != g.scalar_type())
      mine = host_buffer(g.sizes(), g.scalar_type(), g.device());
    return mine.copy_(g);
  }

  NamedTensors theirs_;
  std::vector<Seen> seen_;
  std::vector<StorageMark> marks_;
  std::vector<at::Tensor> gradients_;
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace

std::unique_ptr<Optimizer> host_optimizer(NamedTensors parameters, const MakeOptimizer& make) {
  return std::make_unique<HostOptimizer>(parameters, make);
}

}  // namespace trireme
