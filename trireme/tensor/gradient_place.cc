// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/gradient_place.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <utility>

namespace trireme {
namespace {

using torch::autograd::variable_list;

// A parameter's accumulator is what its offerer and its layer both reach. The hook itself does
// nothing.
struct OfferHook final : torch::autograd::FunctionPostHook {
  explicit OfferHook(std::function<GradientPlace()> f) : offer(std::move(f)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    return outputs;
  }
  std::function<GradientPlace()> offer;
};

const OfferHook* offer_of(const at::Tensor& p) {
  if (!p.is_leaf() || !p.requires_grad()) return nullptr;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(p);
  if (!node) return nullptr;
  const torch::autograd::Node& accumulator = *node;
  for (const auto& hook : accumulator.post_hooks())
    if (auto* found = dynamic_cast<const OfferHook*>(hook.get())) return found;
  return nullptr;
}

}  // namespace

GradientPlaceOffer::GradientPlaceOffer(const at::Tensor& p, std::function<GradientPlace()> offer)
    : node_(torch::autograd::impl::grad_accumulator(p)),
      key_(node_->add_post_hook(std::make_unique<OfferHook>(std::move(offer)))) {}

GradientPlaceOffer::~GradientPlaceOffer() {
  if (node_) node_->del_post_hook(key_);
}

bool has_gradient_place(const at::Tensor& p) { return offer_of(p) != nullptr; }

GradientPlace take_gradient_place(const at::Tensor& p) {
  if (c10::GradMode::is_enabled() || p.grad().defined()) return {};
  // A gradient ends in p.grad() where backward() runs through all there is, or to p's accumulator
  // among others (the second half of a pipeline's backward); not where it is captured.
  const auto* only = torch::autograd::get_current_graph_task_exec_info();
  if (!only) return {};
  if (!only->empty()) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(p);
    const auto at = accumulator ? only->find(accumulator.get()) : only->end();
    if (at == only->end() || !at->second.needed_ || at->second.captures_) return {};
  }
  const OfferHook* hook = offer_of(p);
  return hook ? hook->offer() : GradientPlace{};
}

}  // namespace trireme
