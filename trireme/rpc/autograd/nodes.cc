// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/nodes.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "trireme/base/check.h"

namespace trireme::rpc::autograd {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

template <class T, class... A>
NodeOf<T> made(A&&... arguments) {
  if constexpr (std::is_same_v<compat::NodePtr, std::shared_ptr<Node>>)
    // Deep graphs are taken apart without recursion.
    return NodeOf<T>(new T(std::forward<A>(arguments)...), torch::autograd::deleteNode);
  else
    return c10::make_intrusive<T>(std::forward<A>(arguments)...);
}

/// What the engine is asked for, so that it goes to the node before.
class End final : public Node {
 public:
  std::string name() const override { return "RemoteEnd"; }

 private:
  variable_list apply(variable_list&&) override { return {}; }
};

}  // namespace

void PairNode::set_traffic(std::shared_ptr<GradientTraffic> traffic) {
  std::lock_guard lock(mutex_);
  traffic_.swap(traffic);
}

std::shared_ptr<GradientTraffic> PairNode::traffic() const {
  std::lock_guard lock(mutex_);
  return traffic_;
}

NodeOf<Sent> Sent::make(const Pair& pair, const std::shared_ptr<rpc::detail::Line>& line) {
  auto node = made<Sent>(pair, line);
  node->add_input_metadata(nothing());
  return node;
}

at::Tensor Sent::nothing() { return at::zeros({}); }

void Sent::add(const at::Tensor& tensor) {
  add_next_edge(torch::autograd::impl::gradient_edge(tensor));
}

variable_list Sent::apply(variable_list&&) {
  const auto backward = traffic();
  check<UsageError>(backward != nullptr, "no distributed backward is under way");
  auto gradients = backward->wait_for(pair());
  gradients.resize(num_outputs());
  return gradients;
}

NodeOf<Received> Received::make(const Pair& pair, const std::shared_ptr<rpc::detail::Line>& line,
                                const ContextId& context, std::weak_ptr<void> owner) {
  return made<Received>(pair, line, context, std::move(owner));
}

void Received::add(const NodeOf<Received>& node, at::Tensor& tensor) {
  const auto input = node->add_input_metadata(tensor);
  torch::autograd::impl::set_gradient_edge(tensor, Edge(node, input));
}

// A node that others lead to may get no edges by the front door: their depth would be wrong, by
// which the engine leaves out what lies before the first of the wanted. An End has depth 0, so that
// it leaves out nothing.
void Received::begin(const std::vector<NodeOf<Sent>>& later) {
  auto end = made<End>();
  end->add_input_metadata(Sent::nothing());
  next_edges().clear();
  next_edges().emplace_back(std::move(end), 0);
  for (const auto& node : later) next_edges().emplace_back(node, 0);
}

Edge Received::end() const { return next_edge(0); }

void Received::finish() {
  next_edges().clear();
  set_traffic(nullptr);
}

variable_list Received::apply(variable_list&& gradients) {
  const auto backward = traffic();
  check<UsageError>(
      backward != nullptr,
      "a tensor that came from worker '{}' within a context has its graph there: call "
      "backward() of the rpc::autograd::Context",
      worker());
  backward->leave(*this, std::move(gradients));
  return variable_list(num_outputs());
}

}  // namespace trireme::rpc::autograd
