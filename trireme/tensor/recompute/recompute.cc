// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/recompute/recompute.h"

#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Node;
using torch::autograd::variable_list;
using Edge = std::pair<Node*, uint32_t>;

std::string described(const at::Tensor& t) {
  std::string text = t.name().empty() ? "" : "'" + t.name() + "' ";
  text += "(" + std::string(c10::toString(t.scalar_type())) + " [";
  for (int64_t d = 0; d < t.dim(); ++d) text += (d ? ", " : "") + std::to_string(t.size(d));
  return text + "])";
}

bool wants_gradient(const at::Tensor& t) { return t.defined() && t.requires_grad(); }

// Versions of tensors, so that a change in place is seen.
std::vector<int64_t> versions_of(at::TensorList tensors) {
  std::vector<int64_t> versions;
  for (const at::Tensor& t : tensors)
    versions.push_back(t.defined() && !t.is_inference() ? static_cast<int64_t>(t._version()) : 0);
  return versions;
}

std::optional<size_t> first_difference(const std::vector<int64_t>& a,
                                       const std::vector<int64_t>& b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
  if (at == a.end()) return std::nullopt;
  return static_cast<size_t>(at - a.begin());
}

// A kind of device that a library added may draw from the CPU's; LibTorch throws where it knows
// none.
bool has_generator(at::Device device) {
  static const bool added = [] {
    try {
      return at::globalContext().defaultGenerator(at::Device(at::kPrivateUse1, 0)).defined();
    } catch (const c10::Error&) {
      return false;
    }
  }();
  return is_asynchronous(device) && (device.type() != at::kPrivateUse1 || added);
}

// LibTorch's generators, of the CPU and of the tensors' devices where those have their own.
class Generators {
 public:
  Generators() = default;
  explicit Generators(at::TensorList tensors) {
    add(at::Device(at::kCPU));
    for (const at::Tensor& t : tensors)
      if (t.defined() && has_generator(t.device())) add(t.device());
  }
  Generators now() const {
    Generators other;
    for (const auto& [device, state] : states_) other.add(device);
    return other;
  }
  void restore() const {
    for (const auto& [device, state] : states_) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(state);
    }
  }
  bool operator==(const Generators& o) const {
    return std::equal(states_.begin(), states_.end(), o.states_.begin(), o.states_.end(),
                      [](const auto& a, const auto& b) { return at::equal(a.second, b.second); });
  }

 private:
  void add(at::Device device) {
    for (const auto& [known, state] : states_)
      if (known == device) return;
    at::Generator generator = at::globalContext().defaultGenerator(device);
    std::lock_guard<std::mutex> lock(generator.mutex());
    states_.emplace_back(device, generator.get_state());
  }
  std::vector<std::pair<at::Device, at::Tensor>> states_;
};

class GeneratorsGuard {
 public:
  explicit GeneratorsGuard(const Generators& inside) : before_(inside.now()) { inside.restore(); }
  ~GeneratorsGuard() { before_.restore(); }
  GeneratorsGuard(const GeneratorsGuard&) = delete;

 private:
  Generators before_;
};

// What the second run needs to be the first one again. Lives in the graph's node.
struct Recording : torch::CustomClassHolder {
  RecomputeFn fn;
  std::vector<at::Tensor> parameters;
  std::vector<int64_t> versions;  // of the parameters
  std::vector<bool> given;        // which inputs are defined
  std::vector<bool> input_wants;  // a gradient
  std::vector<std::pair<std::vector<int64_t>, at::ScalarType>> outputs;
  AutocastState autocast;
  RandomScope::Snapshot scope;
  struct Drawn {
    Generators before, after;
  };
  std::optional<Drawn> drawn;  // where the first run drew from LibTorch's generators
};

std::vector<at::Tensor> checked_call(const RecomputeFn& fn, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs = fn(inputs);
  check<UsageError>(!outputs.empty(), "recompute: fn gave no output: return at least one tensor");
  for (size_t i = 0; i < outputs.size(); ++i)
    check<UsageError>(outputs[i].defined(),
                      "recompute: output {} of fn is undefined: leave it out of what fn returns",
                      i);
  return outputs;
}

std::vector<at::Tensor> first_run(Recording& r, const std::vector<at::Tensor>& inputs,
                                  bool torch_generator) {
  const std::vector<int64_t> before = versions_of(inputs);
  r.versions = versions_of(r.parameters);
  r.autocast = AutocastState::current();
  r.scope = RandomScope::snapshot();
  Generators generators;
  if (torch_generator) {
    std::vector<at::Tensor> all = inputs;
    all.insert(all.end(), r.parameters.begin(), r.parameters.end());
    generators = Generators(all);
  }
  std::vector<at::Tensor> outputs;
  {
    // A weight that is cast here, without a graph, must not be found by those who need one.
    AutocastState uncached = r.autocast;
    uncached.cache = false;
    AutocastGuard guard(uncached);
    outputs = checked_call(r.fn, inputs);
  }
  if (torch_generator)
    if (Generators after = generators.now(); !(after == generators))
      r.drawn = Recording::Drawn{std::move(generators), std::move(after)};
  if (auto i = first_difference(before, versions_of(inputs)))
    fail<UsageError>(
        "recompute: fn changes input {} {} in place, so that it cannot be run again: let it work "
        "on a copy",
        *i, described(inputs[*i]));
  if (auto i = first_difference(r.versions, versions_of(r.parameters)))
    fail<UsageError>(
        "recompute: fn changes parameter {} in place, so that it cannot be run again: let it work "
        "on a copy",
        described(r.parameters[*i]));
  for (const at::Tensor& y : outputs) r.outputs.emplace_back(y.sizes().vec(), y.scalar_type());
  return outputs;
}

// Cast weights that are there may lack a graph, and those made here end with this graph.
struct FreshCastCache {
  FreshCastCache() { at::autocast::clear_cache(); }
  ~FreshCastCache() { at::autocast::clear_cache(); }
};

thread_local int second_runs = 0;

struct SecondRun {
  SecondRun() { ++second_runs; }
  ~SecondRun() { --second_runs; }
};

std::vector<at::Tensor> second_run(const Recording& r, const std::vector<at::Tensor>& inputs) {
  const SecondRun running;
  std::optional<GeneratorsGuard> generators;
  if (r.drawn) generators.emplace(r.drawn->before);
  RandomScope scope(r.scope);
  const FreshCastCache cache;
  AutocastGuard autocast(r.autocast);
  c10::AutoGradMode record(true);
  std::vector<at::Tensor> outputs = checked_call(r.fn, inputs);
  check<UsageError>(
      !r.drawn || r.drawn->after.now() == r.drawn->after,
      "recompute: the second run drew other random numbers of LibTorch's generator than the first: "
      "another thread draws from it too. Take trireme::Dropout in the block, or, if the block "
      "draws "
      "nothing, set torch_generator to false");
  check<UsageError>(outputs.size() == r.outputs.size(),
                    "recompute: fn gave {} outputs in forward and {} in backward: it must do the "
                    "same each time",
                    r.outputs.size(), outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].sizes() != r.outputs[i].first || outputs[i].scalar_type() != r.outputs[i].second)
      fail<UsageError>(
          "recompute: output {} of fn is {} in backward and was of another shape or dtype in "
          "forward: it must do the same each time",
          i, described(outputs[i]));
  return outputs;
}

Edge edge_of(const at::Tensor& t) {
  const auto edge = torch::autograd::impl::gradient_edge(t);
  return {edge.function.get(), edge.input_nr};
}

// Every way out of the new graph ends at a declared tensor, or gradients would get lost.
void refuse_undeclared(const variable_list& outputs, const variable_list& declared,
                       uint64_t first_number) {
  std::set<Edge> known;
  for (const at::Tensor& t : declared) known.insert(edge_of(t));
  std::set<Node*> seen;
  std::vector<Node*> todo;
  auto follow = [&](const Edge& edge) {
    auto [node, input] = edge;
    if (!node || known.count(edge) || !seen.insert(node).second) return;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      fail<UsageError>(
          "recompute: fn uses parameter {} that is not among its parameters, so that it would get "
          "no gradient: declare it{}",
          described(leaf->variable),
          leaf->variable.name().empty() ? " (name_parameters() makes this error say its name)"
                                        : "");
    if (node->sequence_nr() < first_number)
      fail<UsageError>(
          "recompute: fn uses a tensor that {} made outside of it, so that it would get no "
          "gradient: give it as an input",
          node->name());
    todo.push_back(node);
  };
  for (const at::Tensor& y : outputs) follow(edge_of(y));
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    for (const auto& next : node->next_edges()) follow({next.function.get(), next.input_nr});
  }
}

struct Recompute : torch::autograd::Function<Recompute> {
  // tensors: the inputs that are defined, then the parameters. A TensorList is seen as inputs of
  // the node; a vector is not.
  static variable_list forward(AutogradContext* ctx, at::TensorList tensors,
                               c10::intrusive_ptr<Recording> recording, bool torch_generator) {
    Recording& r = *recording;
    variable_list inputs(r.given.size());
    for (size_t i = 0, next = 0; i < inputs.size(); ++i)
      if (r.given[i]) inputs[i] = tensors[next++];
    ctx->set_materialize_grads(false);
    ctx->save_for_backward(inputs);
    variable_list outputs = first_run(r, inputs, torch_generator);
    ctx->saved_data["recording"] = c10::IValue::make_capsule(recording);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto capsule = ctx->saved_data["recording"].toCapsule();
    const auto& r = static_cast<const Recording&>(*capsule);
    check<UsageError>(!c10::GradMode::is_enabled(),
                      "recompute: a gradient of the gradient (create_graph=true) does not go "
                      "through it: call the block plainly");
    refuse_changed(r);
    variable_list inputs = ctx->get_saved_variables(), wanted;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined()) continue;
      inputs[i] = inputs[i].detach();
      if (!r.input_wants[i]) continue;
      inputs[i].requires_grad_();
      wanted.push_back(inputs[i]);
    }
    for (const at::Tensor& p : r.parameters)
      if (wants_gradient(p)) wanted.push_back(p);

    const uint64_t first_number = at::sequence_number::peek();
    const variable_list all = second_run(r, inputs);
    variable_list outputs, output_grads;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!grads[i].defined() || !all[i].requires_grad()) continue;
      outputs.push_back(all[i]);
      output_grads.push_back(grads[i]);
    }
    refuse_undeclared(all, wanted, first_number);
    variable_list found(wanted.size());
    if (!outputs.empty() && !wanted.empty())
      found = torch::autograd::grad(outputs, wanted, output_grads, /*retain_graph=*/false,
                                    /*create_graph=*/false, /*allow_unused=*/true);

    variable_list result;  // one for each tensor, then for recording and torch_generator
    auto next = found.begin();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (r.given[i]) result.push_back(r.input_wants[i] ? *next++ : at::Tensor());
    for (const at::Tensor& p : r.parameters)
      result.push_back(wants_gradient(p) ? *next++ : at::Tensor());
    result.resize(result.size() + 2);
    return result;
  }

  static void refuse_changed(const Recording& r) {
    if (auto i = first_difference(r.versions, versions_of(r.parameters)))
      fail<UsageError>(
          "recompute: parameter {} was changed in place between forward and backward, so that the "
          "block cannot be computed again: step the optimizer after backward",
          described(r.parameters[*i]));
    if (!compat::kGradCallsLeafHooks) return;
    for (const at::Tensor& p : r.parameters)
      if (!torch::autograd::impl::hooks(p).empty())
        fail<UsageError>(
            "recompute: parameter {} has a hook (register_hook), which this LibTorch would call "
            "twice: hook its gradient accumulator instead",
            described(p));
  }
};

}  // namespace

std::vector<at::Tensor> recompute(RecomputeFn fn, const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Tensor>& parameters,
                                  RecomputeOptions options) {
  check<UsageError>(static_cast<bool>(fn), "recompute: fn is empty: give what is to be computed");
  for (size_t i = 0; i < parameters.size(); ++i)
    check<UsageError>(parameters[i].defined(),
                      "recompute: parameter {} of the list is undefined: leave it out", i);
  const bool recorded = c10::GradMode::is_enabled() &&
                        (std::any_of(inputs.begin(), inputs.end(), wants_gradient) ||
                         std::any_of(parameters.begin(), parameters.end(), wants_gradient));
  if (!recorded) return checked_call(fn, inputs);

  auto recording = c10::make_intrusive<Recording>();
  recording->fn = std::move(fn);
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& x : inputs) {
    recording->given.push_back(x.defined());
    recording->input_wants.push_back(wants_gradient(x));
    if (x.defined()) tensors.push_back(x);
  }
  // Once each, and only those that get one: a node's edge for each would count twice otherwise.
  std::set<at::TensorImpl*> seen;
  for (const at::Tensor& p : parameters)
    if (wants_gradient(p) && seen.insert(p.unsafeGetTensorImpl()).second)
      recording->parameters.push_back(p);
  tensors.insert(tensors.end(), recording->parameters.begin(), recording->parameters.end());
  return Recompute::apply(at::TensorList(tensors), recording, options.torch_generator);
}

at::Tensor recompute(std::function<at::Tensor(const at::Tensor&)> fn, const at::Tensor& input,
                     const std::vector<at::Tensor>& parameters, RecomputeOptions options) {
  check<UsageError>(static_cast<bool>(fn), "recompute: fn is empty: give what is to be computed");
  return recompute(
      [fn = std::move(fn)](const std::vector<at::Tensor>& x) {
        return std::vector<at::Tensor>{fn(x[0])};
      },
      std::vector<at::Tensor>{input}, parameters, options)[0];
}

bool recomputing() { return second_runs > 0; }

void name_parameters(const NamedTensors& parameters) {
  for (const auto& [name, p] : parameters) torch::autograd::impl::set_name(p, name);
}

}  // namespace trireme
