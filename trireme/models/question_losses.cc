// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/question_losses.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr int64_t kIgnored = -1;
constexpr double kLeastDoubt = 1e-12;  // 0 to a power below 1 has no gradient

at::Tensor summed_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// log softmax [n, classes], whether rows count [n], and their targets, 0 where they do not.
struct Rows {
  at::Tensor logs, count, targets;
  Rows(const at::Tensor& logits, const at::Tensor& given)
      : logs(summed_type(logits).log_softmax(-1)),
        count(given.ge(0)),
        targets(given.clamp_min(0)) {}
  at::Tensor of_target() const { return logs.gather(1, targets.unsqueeze(1)).squeeze(1); }
  at::Tensor sum(const at::Tensor& of_row) const {
    return at::where(count, of_row, at::zeros_like(of_row)).sum();
  }
};

}  // namespace

at::Tensor cross_entropy_of_rows(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor known = targets.clamp_min(kIgnored);
  return at::cross_entropy_loss(summed_type(logits), known, {}, at::Reduction::Sum, kIgnored);
}

at::Tensor focal_loss_of_rows(const at::Tensor& logits, const at::Tensor& targets, double gamma) {
  const Rows rows(logits, targets);
  const at::Tensor log_p = rows.of_target();
  return rows.sum(log_p.exp().neg().add(1).clamp_min(kLeastDoubt).pow(gamma).mul(log_p).neg());
}

at::Tensor smoothed_cross_entropy_of_rows(const at::Tensor& logits, const at::Tensor& targets,
                                          double smoothing) {
  const int64_t classes = logits.size(-1);
  check<UsageError>(smoothing >= 0 && smoothing < 1 && classes >= 2,
                    "label smoothing of {} over {} classes: it takes 0 or more, below 1, and two "
                    "classes or more",
                    smoothing, classes);
  const Rows rows(logits, targets);
  const double other = smoothing / static_cast<double>(classes - 1);
  const at::Tensor of_row =
      rows.of_target().mul(1 - smoothing - other).add(rows.logs.sum(-1), other).neg();
  return rows.sum(of_row);
}

at::Tensor squared_error_of_rows(const at::Tensor& values, const at::Tensor& targets) {
  const at::Tensor v = summed_type(values), squares = v.sub(targets.to(v.scalar_type())).square();
  return at::where(targets.ge(0), squares, at::zeros_like(squares)).sum();
}

int64_t rows_that_count(const at::Tensor& targets) { return targets.ge(0).sum().item<int64_t>(); }

}  // namespace trireme
