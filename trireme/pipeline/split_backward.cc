// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/split_backward.h"

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// The gradients that arrive at a node.
class NoteGradients final : public torch::autograd::FunctionPreHook {
 public:
  explicit NoteGradients(std::shared_ptr<variable_list> noted) : noted_(std::move(noted)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (noted_->empty()) *noted_ = gradients;
    return gradients;
  }

 private:
  std::shared_ptr<variable_list> noted_;
};

/// Where the second half begins, and the accumulators that it reaches from there.
struct Root {
  explicit Root(compat::NodePtr n = {}) : node(std::move(n)) {}
  compat::NodePtr node;
  std::shared_ptr<variable_list> gradients = std::make_shared<variable_list>();
  edge_list leaves;
};

/// The part of the graph behind some outputs.
class Graph {
 public:
  Graph(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
    for (const at::Tensor& t : inputs)
      if (const auto node = torch::autograd::impl::try_get_grad_accumulator(t))
        inputs_.insert(node.get());
    for (const at::Tensor& t : outputs)
      if (t.requires_grad()) visit(torch::autograd::impl::gradient_edge(t).function);
  }

  /// Nodes from which gradients go to parameters by paths that no input lies on.
  std::vector<Root> roots() const {
    std::vector<Root> all;
    for (const auto& [node, pointer] : nodes_) {
      if (!on_path_.count(node)) continue;
      Root root(pointer);
      std::unordered_set<Node*> seen;
      for (const Edge& next : node->next_edges()) add_leaves(next, seen, root);
      if (!root.leaves.empty()) all.push_back(std::move(root));
    }
    // As a backward goes through them: layers of which ranks hold parts call each other there, and
    // must do so in one order on all ranks.
    std::sort(all.begin(), all.end(), [](const Root& a, const Root& b) {
      return a.node->sequence_nr() > b.node->sequence_nr();
    });
    return all;
  }
  /// Lets go of what forward saved for nodes through which the first half went and the second does
  /// not: activations between the layers.
  void release_all_but(const std::vector<Root>& roots) const {
    std::unordered_set<Node*> kept;
    for (const Root& root : roots) kept.insert(root.node.get());
    for (Node* node : on_path_)
      if (!kept.count(node)) node->release_variables();
  }
  bool leads_to_inputs(Node* node) const { return on_path_.count(node) > 0; }
  /// The accumulators behind a node that leads to no input.
  edge_list leaves_behind(const Edge& edge) const {
    Root root;
    std::unordered_set<Node*> seen;
    add_leaves(edge, seen, root);
    return root.leaves;
  }

 private:
  // Depth first, without recursion: a graph may be as deep as a network has operators.
  void visit(const compat::NodePtr& from) {
    if (!from || !nodes_.emplace(from.get(), from).second) return;
    std::vector<std::pair<Node*, size_t>> stack{{from.get(), 0}};
    if (inputs_.count(from.get())) on_path_.insert(from.get());
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == node->num_outputs()) {
        const bool leads = on_path_.count(node) > 0;
        stack.pop_back();
        if (leads && !stack.empty()) on_path_.insert(stack.back().first);
        continue;
      }
      const compat::NodePtr child = node->next_edge(next++).function;
      if (!child) continue;
      if (nodes_.emplace(child.get(), child).second) {
        if (inputs_.count(child.get())) on_path_.insert(child.get());
        stack.emplace_back(child.get(), 0);
      } else if (on_path_.count(child.get())) {
        on_path_.insert(node);
      }
    }
  }
  // What lies behind a node that leads to no input leads to none either.
  void add_leaves(const Edge& edge, std::unordered_set<Node*>& seen, Root& root) const {
    std::vector<Edge> stack{edge};
    while (!stack.empty()) {
      const Edge at = stack.back();
      stack.pop_back();
      if (!at.is_valid() || on_path_.count(at.function.get()) ||
          !seen.insert(at.function.get()).second)
        continue;
      if (at.function->num_outputs() == 0)  // an accumulator
        root.leaves.push_back(at);
      else
        for (const Edge& next : at.function->next_edges()) stack.push_back(next);
    }
  }

  std::unordered_map<Node*, compat::NodePtr> nodes_;
  std::unordered_set<Node*> inputs_, on_path_;
};

void accumulate(const edge_list& roots, const variable_list& gradients, const edge_list& leaves) {
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/true,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true, leaves);
}

bool any_twice(const std::vector<Root>& roots) {
  std::unordered_set<Node*> seen;
  for (const Root& root : roots)
    for (const Edge& leaf : root.leaves)
      if (!seen.insert(leaf.function.get()).second) return true;
  return false;
}

}  // namespace

SplitBackward::SplitBackward(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs)
    : outputs_(std::move(outputs)), inputs_(std::move(inputs)) {}

std::vector<at::Tensor> SplitBackward::input_gradients(const std::vector<at::Tensor>& gradients) {
  check<UsageError>(!rest_, "input_gradients() was called before");
  variable_list trained, arriving, wanted;
  for (const at::Tensor& t : inputs_)
    if (t.requires_grad()) wanted.push_back(t);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!outputs_[i].requires_grad()) continue;
    trained.push_back(outputs_[i]);
    arriving.push_back(gradients[i].defined() ? gradients[i] : at::ones_like(outputs_[i]));
  }
  outputs_.clear();
  check<UsageError>(!trained.empty(), "no output requires a gradient: nothing can be trained");
  if (wanted.empty()) {  // nobody waits for the first half
    rest_ = [trained, arriving] { torch::autograd::backward(trained, arriving); };
    return Tensors(inputs_.size());
  }

  const Graph graph(trained, wanted);
  auto roots = std::make_shared<std::vector<Root>>(graph.roots());
  // Outputs that do not depend on the inputs.
  for (size_t i = 0; i < trained.size(); ++i) {
    const Edge edge = torch::autograd::impl::gradient_edge(trained[i]);
    if (graph.leads_to_inputs(edge.function.get())) continue;
    Root root(edge.function);
    root.gradients->resize(edge.input_nr + 1);
    root.gradients->back() = arriving[i];
    root.leaves = graph.leaves_behind(edge);
    roots->push_back(std::move(root));
  }
  if (any_twice(*roots)) {
    torch::autograd::backward(trained, arriving);
    rest_ = [] {};
    Tensors found;
    for (at::Tensor& t : inputs_) found.push_back(std::exchange(t.mutable_grad(), {}));
    return found;
  }
  for (const Root& root : *roots)
    if (root.gradients->empty())
      root.node->add_pre_hook(std::make_unique<NoteGradients>(root.gradients));
  variable_list found = torch::autograd::grad(trained, wanted, arriving, /*retain_graph=*/true,
                                              /*create_graph=*/false, /*allow_unused=*/true);
  graph.release_all_but(*roots);
  rest_ = [trained, roots] {
    for (const Root& root : *roots) {
      edge_list at;
      variable_list noted;
      for (size_t i = 0; i < root.gradients->size(); ++i) {
        if (!(*root.gradients)[i].defined()) continue;
        at.emplace_back(root.node, static_cast<uint32_t>(i));
        noted.push_back((*root.gradients)[i]);
      }
      if (!at.empty()) accumulate(at, noted, root.leaves);
    }
  };
  Tensors by_input;
  auto next = found.begin();
  for (const at::Tensor& t : inputs_)
    by_input.push_back(t.requires_grad() ? *next++ : at::Tensor());
  return by_input;
}

void SplitBackward::weight_gradients() {
  check<UsageError>(static_cast<bool>(rest_), "weight_gradients() comes after input_gradients()");
  std::exchange(rest_, nullptr)();
  inputs_.clear();
}

}  // namespace trireme
