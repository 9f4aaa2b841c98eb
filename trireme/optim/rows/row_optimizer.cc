// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rows/row_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include "trireme/base/check.h"
#include "trireme/optim/rows/touched_rows.h"

namespace trireme {
namespace {

std::string sizes_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

bool is_half_float(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

RowTable checked_table(const std::string& who, RowTable given) {
  const at::Tensor& t = given.table;
  check<UsageError>(!given.name.empty(),
                    "{}: the table has no name: give it one, by which checkpoints know its state",
                    who);
  check<UsageError>(t.defined(), "{}: the table '{}' is an undefined tensor", who, given.name);
  check<UsageError>(t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble,
                    "{}: the table '{}' is {}: steps over rows take float32 or float64", who,
                    given.name, c10::toString(t.scalar_type()));
  check<UsageError>(t.dim() >= 2, "{}: the table '{}' is {}: it must be [rows, …]", who, given.name,
                    sizes_text(t.sizes()));
  check<UsageError>(t.layout() == at::kStrided && t.is_contiguous(),
                    "{}: the table '{}' is not contiguous: store it with .contiguous()", who,
                    given.name);
  const int64_t all = given.all_rows.value_or(given.first_row + t.size(0));
  check<UsageError>(
      given.first_row >= 0 && given.first_row <= all && t.size(0) <= all - given.first_row,
      "{}: '{}' has rows {} to {} of a table of {}: they are not in it", who, given.name,
      given.first_row, given.first_row + t.size(0), all);
  given.all_rows = all;
  return given;
}

}  // namespace

RowOptimizer::~RowOptimizer() = default;

RowOptimizer::RowOptimizer(std::string who, RowTable table)
    : who_(std::move(who)),
      table_(checked_table(who_, std::move(table))),
      shape_(table_.table.sizes().vec()),
      dtype_(table_.table.scalar_type()) {}

void RowOptimizer::add_state(const std::string& kind, double value) {
  states_.emplace_back(kind, at::full(shape_, value, table_.table.options().requires_grad(false)));
}

void RowOptimizer::check_gradients(const at::Tensor& rows, const at::Tensor& gradients) const {
  const at::Tensor& t = table_.table;
  check<UsageError>(t.scalar_type() == dtype_ && t.sizes() == shape_ && t.is_contiguous(),
                    "{}: the table '{}' changed its dtype, size or layout (now {} {}) after the "
                    "optimizer was made: make a new optimizer",
                    who_, table_.name, c10::toString(t.scalar_type()), sizes_text(t.sizes()));
  check<UsageError>(rows.defined() && gradients.defined(),
                    "{}: rows or gradients of '{}' are an undefined tensor", who_, table_.name);
  check<UsageError>(
      rows.scalar_type() == at::kLong && rows.dim() == 1 && rows.layout() == at::kStrided,
      "{}: the rows of '{}' are {} {}: give their numbers as int64 [n]", who_, table_.name,
      c10::toString(rows.scalar_type()), sizes_text(rows.sizes()));
  std::vector<int64_t> wanted = shape_;
  wanted[0] = rows.size(0);
  check<UsageError>(
      gradients.layout() == at::kStrided && gradients.sizes() == wanted &&
          (gradients.scalar_type() == dtype_ ||
           (is_half_float(gradients.scalar_type()) && dtype_ == at::kFloat)) &&
          gradients.device() == t.device(),
      "{}: the gradients of {} rows of '{}' are {} {} on {}: they must be {} {} on {}", who_,
      rows.size(0), table_.name, c10::toString(gradients.scalar_type()),
      sizes_text(gradients.sizes()), gradients.device().str(), c10::toString(dtype_),
      sizes_text(wanted), t.device().str());
}

at::Tensor RowOptimizer::checked_rows(const at::Tensor& rows) const {
  const at::Tensor here = rows.detach().cpu().contiguous();
  const auto* number = host_data<int64_t>(here);
  for (int64_t i = 0; i < here.size(0); ++i) {
    check<UsageError>(number[i] >= 0 && number[i] < shape_[0],
                      "{}: there is no row {} of '{}' (at {} of {}): it has {}", who_, number[i],
                      table_.name, i, here.size(0), shape_[0]);
    check<UsageError>(i == 0 || number[i - 1] < number[i],
                      "{}: row {} of '{}' follows row {} (at {} of {}): each may be there once, in "
                      "ascending order, as merge_rows() makes them",
                      who_, number[i], table_.name, number[i - 1], i, here.size(0));
  }
  return here;
}

void RowOptimizer::step(const at::Tensor& rows, const at::Tensor& gradients, double lr,
                        double grad_scale) {
  check_gradients(rows, gradients);
  const at::Tensor checked = checked_rows(rows);
  c10::AutoGradMode no_grad(false);
  const auto matrix = [&](const at::Tensor& t) {  // -1 would not do for no rows
    int64_t width = 1;
    for (size_t i = 1; i < shape_.size(); ++i) width *= shape_[i];
    return t.detach().view({t.size(0), width});
  };
  Touched touched{matrix(table_.table), checked, matrix(gradients.to(dtype_).contiguous()), {}};
  for (const auto& [kind, state] : states_) touched.states.push_back(matrix(state));
  ++steps_;
  if (gradients.numel() == 0) return;
  update(touched, lr, grad_scale);
  bump_version(table_.table);
}

void RowOptimizer::state(StateVisitor& visitor) {
  visitor.value("optim.steps." + table_.name, steps_);
  std::vector<int64_t> global = shape_, offsets(shape_.size(), 0);
  global[0] = *table_.all_rows;
  offsets[0] = table_.first_row;
  for (auto& [kind, state] : states_)
    visitor.tensor(Slice{"optim." + kind + "." + table_.name, global, offsets, shape_}, state);
}

}  // namespace trireme
