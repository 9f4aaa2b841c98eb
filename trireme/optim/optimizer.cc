// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/optimizer.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

std::string shape_text(const at::Tensor& t) {
  std::string text = "[";
  for (int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
  return text + "]";
}

void check_parameter(const std::string& name, const at::Tensor& p, const NamedTensors& all) {
  check<UsageError>(p.defined(), "optimizer: parameter '{}' is an undefined tensor", name);
  const auto& [first_name, first] = all.front();
  check<UsageError>(p.scalar_type() == at::kFloat || p.scalar_type() == at::kDouble,
                    "optimizer: parameter '{}' is {}: the optimizer takes float32 or float64 (for "
                    "half-precision weights: with_master_weights)",
                    name, c10::toString(p.scalar_type()));
  check<UsageError>(p.scalar_type() == first.scalar_type() && p.device() == first.device(),
                    "optimizer: parameter '{}' is {} on {} but '{}' is {} on {}: make one "
                    "optimizer for each kind",
                    name, c10::toString(p.scalar_type()), p.device().str(), first_name,
                    c10::toString(first.scalar_type()), first.device().str());
  check<UsageError>(p.layout() == at::kStrided && p.is_contiguous(),
                    "optimizer: parameter '{}' is not contiguous: store it with .contiguous()",
                    name);
}

}  // namespace

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(NamedTensors parameters, const std::vector<OptionGroup>& groups) {
  TiedNames tied;
  parameters_ = unique_tensors(parameters, &tied);
  check<UsageError>(!parameters_.empty(),
                    "optimizer: no parameters: does the model have any that require a gradient?");
  for (const auto& [name, p] : parameters_) check_parameter(name, p, parameters_);
  table_ = ParameterTable(parameters_);
  groups_.push_back({});
  std::vector<std::pair<std::string, int>> rules;
  for (const auto& group : groups) {
    check<UsageError>(!group.pattern.empty(), "optimizer: option group {} has an empty pattern",
                      groups_.size());
    check<UsageError>(
        group.weight_decay.value_or(0) >= 0 && group.lr_multiplier >= 0,
        "optimizer: option group '{}': weight_decay and lr_multiplier must not be negative",
        group.pattern);
    for (const auto& pattern : with_first_names({group.pattern}, tied))
      rules.emplace_back(pattern, static_cast<int>(groups_.size()));
    groups_.push_back(group);
  }
  table_.assign_option_groups(rules);
}

Optimizer::Segments Optimizer::segments() const {
  std::vector<Segment> found;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, p] = parameters_[i];
    const auto& entry = table_[i];
    const at::Tensor& g = p.grad();
    if (!g.defined()) continue;
    check<UsageError>(
        p.scalar_type() == entry.dtype && p.numel() == entry.numel && p.is_contiguous(),
        "optimizer: parameter '{}' changed its dtype, size or layout (now {} {}) after the "
        "optimizer was "
        "made: make a new optimizer after model.to(…)",
        name, c10::toString(p.scalar_type()), shape_text(p));
    check<UsageError>(g.layout() == at::kStrided,
                      "optimizer: the gradient of '{}' is sparse: only dense gradients", name);
    check<UsageError>(
        (g.scalar_type() == p.scalar_type() ||
         (is_half(g.scalar_type()) && p.scalar_type() == at::kFloat)) &&
            g.sizes() == p.sizes() && g.device() == p.device(),
        "optimizer: the gradient of '{}' is {} {} on {} but the parameter is {} {} on {}", name,
        c10::toString(g.scalar_type()), shape_text(g), g.device().str(),
        c10::toString(p.scalar_type()), shape_text(p), p.device().str());
    found.push_back({i, p, g.contiguous(), entry.offset, entry.numel});
  }
  return Segments(std::move(found));
}

Optimizer::Segment Optimizer::Segments::operator[](size_t i) const {
  Segment s = found_[i];
  if (s.gradient.scalar_type() == s.parameter.scalar_type()) return s;
  c10::AutoGradMode no_grad(false);
  if (!scratch_.defined() || scratch_.numel() < s.numel)
    scratch_ = at::empty({s.numel}, s.parameter.options().requires_grad(false));
  at::Tensor wide = scratch_.narrow(0, 0, s.numel).view(s.gradient.sizes());
  s.gradient = wide.copy_(s.gradient);
  return s;
}

at::Tensor Optimizer::zeros() const {
  return parameters_.front().second.detach().new_zeros({table_.numel()});
}

void Optimizer::visit(StateVisitor& visitor, const std::string& kind, const at::Tensor& flat) {
  for (const auto& entry : table_.entries())
    visitor.tensor("optim." + kind + "." + entry.name,
                   flat.narrow(0, entry.offset, entry.numel).view(entry.shape));
}

void Optimizer::visit_steps(StateVisitor& visitor, std::vector<int64_t>& taken) {
  for (size_t i = 0; i < table_.size(); ++i)
    visitor.value("optim.steps." + table_[i].name, taken[i]);
}

std::vector<bool> Optimizer::not_matching(const std::vector<std::string>& patterns) const {
  std::vector<bool> found;
  for (const auto& entry : table_.entries())
    found.push_back(std::none_of(patterns.begin(), patterns.end(),
                                 [&](const std::string& p) { return glob_match(p, entry.name); }));
  return found;
}

double Optimizer::decay_of(size_t parameter, double default_decay) const {
  return groups_[table_[parameter].option_group].weight_decay.value_or(default_decay);
}

double Optimizer::multiplier_of(size_t parameter) const {
  return groups_[table_[parameter].option_group].lr_multiplier;
}

void Optimizer::zero_grad(const NamedTensors& parameters, bool set_to_none) {
  c10::AutoGradMode no_grad(false);
  for (const auto& [name, p] : parameters) {
    at::Tensor& g = p.mutable_grad();
    if (!g.defined()) continue;
    // A gradient with a graph (create_graph) cannot be reused in place.
    if (set_to_none || g.requires_grad())
      g = at::Tensor();
    else
      g.zero_();
  }
}

void Optimizer::zero_grad(bool set_to_none) { zero_grad(parameters_, set_to_none); }

}  // namespace trireme
