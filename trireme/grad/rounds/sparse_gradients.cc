// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/sparse_gradients.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "trireme/base/check.h"
#include "trireme/comm/reachable.h"
#include "trireme/tensor/numbers_of.h"

namespace trireme {
namespace {

constexpr double kDense = -1;  // instead of a number of rows

}  // namespace

void refuse_sparse(const NamedTensors& sparse) {
  for (const auto& [name, p] : sparse) try {
      at::empty({0}, p.options().layout(at::kSparse));
    } catch (const c10::Error&) {
      fail<UsageError>(
          "DistributedDataParallel: the gradient of '{}' is sparse, and this LibTorch has no "
          "sparse "
          "tensors on {}: make the embedding with sparse(false), or train it on the CPU",
          name, p.device().str());
    }
}

SparseGradients::SparseGradients(GradientRound& inner, NamedTensors sparse, Group group,
                                 ReduceOp op)
    : RoundDecorator(inner),
      sparse_(std::move(sparse)),
      group_(std::move(group)),
      op_(op),
      used_(sparse_.size()),
      outside_(sparse_.size()),
      used_by_(sparse_.size()) {}

const at::Tensor& SparseGradients::parameter(size_t i) const {
  return i < inner_.size() ? inner_.parameter(i) : sparse_[i - inner_.size()].second;
}

const std::string& SparseGradients::name(size_t i) const {
  return i < inner_.size() ? inner_.name(i) : sparse_[i - inner_.size()].first;
}

void SparseGradients::open() {
  for (size_t k = 0; k < sparse_.size(); ++k)  // a gradient that was dropped since is none
    used_[k] = outside_[k] && sparse_[k].second.grad().defined();
  outside_.assign(sparse_.size(), false);
  inner_.open();
}

void SparseGradients::ready(size_t i) {
  if (i < inner_.size())
    inner_.ready(i);
  else
    used_[i - inner_.size()] = true;
}

void SparseGradients::accumulated_outside(size_t i) {
  if (i < inner_.size())
    inner_.accumulated_outside(i);
  else
    outside_[i - inner_.size()] = true;
}

void SparseGradients::close() {
  inner_.close();
  if (sparse_.empty()) return;
  at::NoGradGuard no_grad;
  // One exchange says who has how many rows of what; a parameter that a rank did not use has none,
  // but what is left from before counts as it does for dense ones.
  const auto n = static_cast<size_t>(group_.size()), count = sparse_.size();
  const auto options =
      at::TensorOptions(at::kDouble)
          .device(detail::reachable_device(group_, Collective::all_gather, at::kDouble));
  std::vector<double> mine(2 * count);
  for (size_t k = 0; k < count; ++k) {
    at::Tensor& grad = sparse_[k].second.mutable_grad();
    mine[2 * k] = used_[k];
    if (!grad.defined()) continue;
    if (grad.is_sparse()) grad = grad.coalesce();
    mine[2 * k + 1] = grad.is_sparse() ? static_cast<double>(grad._nnz()) : kDense;
  }
  const auto width = static_cast<int64_t>(mine.size());
  at::Tensor all = at::empty({static_cast<int64_t>(n), width}, options);
  group_.all_gather_into_tensor(all, at::from_blob(mine.data(), {width}, at::kDouble).to(options))
      .wait();
  const std::vector<double> table = numbers_of<double>(all);
  for (size_t k = 0; k < count; ++k) {
    std::vector<double> rows;
    used_by_[k] = 0;
    for (size_t r = 0; r < n; ++r) {
      used_by_[k] += table[r * mine.size() + 2 * k] != 0;
      rows.push_back(table[r * mine.size() + 2 * k + 1]);
      check<UsageError>(rows.back() != kDense,
                        "the gradient of '{}' is dense on rank {}, but was announced as sparse: "
                        "remove it from DdpOptions::sparse, or set sparse(true) on the layer",
                        sparse_[k].first, r);
    }
    if (used_by_[k] > 0) reduce(k, rows);
  }
}

void SparseGradients::reduce(size_t k, const std::vector<double>& rows) {
  const at::Tensor& p = sparse_[k].second;
  const auto n = rows.size(), me = static_cast<size_t>(group_.rank());
  std::vector<int64_t> row = p.sizes().vec();  // of values: nnz × what a row holds
  auto with_rows = [&](size_t r) {
    row[0] = static_cast<int64_t>(rows[r]);
    return row;
  };
  at::Tensor& grad = p.mutable_grad();
  const bool has = grad.defined();
  at::Tensor my_indices =
      has ? grad.indices().select(0, 0).contiguous() : at::empty({0}, p.options().dtype(at::kLong));
  at::Tensor my_values = has ? grad.values().contiguous() : at::empty(with_rows(me), p.options());
  std::vector<at::Tensor> indices, values;
  for (size_t r = 0; r < n; ++r) {
    indices.push_back(at::empty({static_cast<int64_t>(rows[r])}, p.options().dtype(at::kLong)));
    values.push_back(at::empty(with_rows(r), p.options()));
  }
  Work i = group_.all_gather(indices, my_indices), v = group_.all_gather(values, my_values);
  i.wait();
  v.wait();
  // coalesce() adds equal rows in the order in which they stand: rank after rank, on every rank.
  at::Tensor sum =
      at::sparse_coo_tensor(at::cat(indices).unsqueeze(0), at::cat(values), p.sizes()).coalesce();
  if (op_ == ReduceOp::avg) sum.values().div_(static_cast<double>(n));
  grad = sum;
}

void SparseGradients::scale(double factor) {
  at::NoGradGuard no_grad;
  for (size_t k = 0; k < sparse_.size(); ++k)
    if (used_by_[k] > 0) sparse_[k].second.mutable_grad().coalesce().values().mul_(factor);
}

}  // namespace trireme
