// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/torch_optimizer_state.h"

#include <ATen/ops/full_like.h>
#include <c10/util/Type.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "trireme/base/check.h"
#include "trireme/tensor/layout_state.h"
#include "trireme/tensor/module_state.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {
namespace {

using TorchStates = std::decay_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

// Calls f(name, tensor) for the state that a step keeps of a parameter, given its group's options.
template <class State, class Options, class F>
void each_kept_tensor(State& s, const Options& o, const F& f) {
  if constexpr (requires { s.exp_avg(); }) {
    f("exp_avg", s.exp_avg());
    f("exp_avg_sq", s.exp_avg_sq());
    if (o.amsgrad()) f("max_exp_avg_sq", s.max_exp_avg_sq());
  }
  if constexpr (requires { s.square_avg(); }) {
    f("square_avg", s.square_avg());
    if (o.centered()) f("grad_avg", s.grad_avg());
  }
  if constexpr (requires { s.momentum_buffer(); })
    if (o.momentum() != 0) f("momentum_buffer", s.momentum_buffer());
  if constexpr (requires { s.sum(); }) f("sum", s.sum());
}

// The number of steps of this state; SGD does not count them, but its state exists after the first.
template <class State>
int64_t steps_of(const State& s) {
  if constexpr (requires { s.step(); })
    return s.step();
  else
    return s.momentum_buffer().defined() ? 1 : 0;
}

template <class Options>
void visit_options(Options& o, const std::string& group, StateVisitor& v) {
  const auto number = [&](const char* name, double& value) { v.value(group + name, value); };
  const auto flag = [&](const char* name, bool& value) {
    int64_t as_int = value;
    v.value(group + name, as_int);
    value = as_int != 0;
  };
  number("lr", o.lr());
  number("weight_decay", o.weight_decay());
  if constexpr (requires { o.betas(); }) {
    number("beta1", std::get<0>(o.betas()));
    number("beta2", std::get<1>(o.betas()));
    v.constant(group + "amsgrad", o.amsgrad() ? "true" : "false");
  }
  if constexpr (requires { o.eps(); }) number("eps", o.eps());
  if constexpr (requires { o.momentum(); }) number("momentum", o.momentum());
  if constexpr (requires { o.dampening(); }) {
    number("dampening", o.dampening());
    flag("nesterov", o.nesterov());
  }
  if constexpr (requires { o.centered(); }) {
    number("alpha", o.alpha());
    v.constant(group + "centered", o.centered() ? "true" : "false");
  }
  if constexpr (requires { o.lr_decay(); }) number("lr_decay", o.lr_decay());
}

// Visits one parameter's state. For state that does not exist yet, temporary zeros are visited.
template <class State, class Options>
void visit_parameter(TorchStates& states, const at::Tensor& p, const std::string& name,
                     const Options& o, StateVisitor& v) {
  const auto key = compat::optimizer_key<TorchStates>(p);
  const auto it = states.find(key);
  State state = it == states.end() ? State() : static_cast<const State&>(*it->second);
  int64_t steps = it == states.end() ? 0 : steps_of(state);
  if (!p.requires_grad() && steps == 0) return;
  double begin = 0;
  if constexpr (requires { o.initial_accumulator_value(); }) begin = o.initial_accumulator_value();
  bool keeps_any = false;
  each_kept_tensor(state, o, [&](const char* kind, at::Tensor& t) {
    keeps_any = true;
    if (!t.defined()) t = at::full_like(p.detach(), begin);
    show_contiguous(t, [&](at::Tensor shown) {
      v.tensor(fmt::format("optim.{}.{}", kind, name), std::move(shown));
    });
  });
  if (!keeps_any) return;  // SGD without momentum
  v.value("optim.steps." + name, steps);
  if (!v.loading()) return;
  check<UsageError>(steps >= 0, "load: 'optim.steps.{}' is {}", name, steps);
  // Adagrad's is there before the first step.
  constexpr bool from_the_start = requires { o.initial_accumulator_value(); };
  if (steps == 0 && !from_the_start) {
    states.erase(key);
    return;
  }
  if constexpr (requires { state.step(steps); }) state.step(steps);
  states[key] = std::make_unique<State>(std::move(state));
}

template <class State, class Options>
void visit_groups(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                  StateVisitor& v) {
  std::unordered_map<const at::TensorImpl*, const std::string*> names;
  for (const auto& [name, p] : parameters) names.emplace(p.unsafeGetTensorImpl(), &name);
  std::unordered_set<const at::TensorImpl*> visited;
  auto& groups = optimizer.param_groups();
  v.constant("optim.groups", std::to_string(groups.size()));
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& options = static_cast<Options&>(groups[g].options());
    visit_options(options, fmt::format("optim.groups.{}.", g), v);
    for (size_t i = 0; i < groups[g].params().size(); ++i) {
      const at::Tensor& p = groups[g].params()[i];
      const auto name = names.find(p.unsafeGetTensorImpl());
      check<UsageError>(name != names.end(),
                        "state_of: tensor {} of the optimizer's group {} is not a parameter of the "
                        "module: pass the module from which the optimizer was made, or for a "
                        "ShardedOptimizer use state_of(optimizer) alone",
                        i, g);
      if (p.numel() > 0 && visited.insert(p.unsafeGetTensorImpl()).second)
        visit_parameter<State>(optimizer.state(), p, *name->second, options, v);
    }
  }
}

template <class Optimizer, class State, class Options>
bool visit_if(const char* type, torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
              StateVisitor& v) {
  if (!dynamic_cast<Optimizer*>(&optimizer)) return false;
  v.constant("optim.type", type);
  visit_groups<State, Options>(optimizer, parameters, v);
  return true;
}

}  // namespace

void visit_torch_optimizer(torch::optim::Optimizer& o, const NamedTensors& parameters,
                           StateVisitor& v) {
  using namespace torch::optim;
  const bool visited =
      visit_if<SGD, SGDParamState, SGDOptions>("SGD", o, parameters, v) ||
      visit_if<Adam, AdamParamState, AdamOptions>("Adam", o, parameters, v) ||
      visit_if<AdamW, AdamWParamState, AdamWOptions>("AdamW", o, parameters, v) ||
      visit_if<RMSprop, RMSpropParamState, RMSpropOptions>("RMSprop", o, parameters, v) ||
      visit_if<Adagrad, AdagradParamState, AdagradOptions>("Adagrad", o, parameters, v);
  check<UsageError>(
      visited || !dynamic_cast<LBFGS*>(&o),
      "state_of: the state of torch::optim::LBFGS, a history of whole gradients, is not saved; the "
      "optimizers that are: SGD, Adam, AdamW, RMSprop, Adagrad");
  check<UsageError>(visited,
                    "state_of: the state of optimizer {} is not known; the optimizers that are: "
                    "SGD, Adam, AdamW, RMSprop, Adagrad",
                    c10::demangle(typeid(o).name()));
}

StateWalk state_of(torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  return [&optimizer, &module](StateVisitor& v) {
    with_layouts(
        [&](StateVisitor& parts) {
          visit_torch_optimizer(optimizer, named_parameters(module), parts);
        },
        module)(v);
  };
}

}  // namespace trireme
