// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/verdict.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"

namespace trireme {

GlobalLoss global_loss(const Run& run) {
  const Gradients::Reports reports = run.gradients->reports();
  GlobalLoss total;
  for (size_t r = 0; r < reports.sums.size(); ++r) {
    if (!std::isfinite(reports.sums[r]) && total.not_finite < 0)
      total.not_finite = static_cast<int>(r);
    total.sum += reports.sums[r];
    total.weight += static_cast<int64_t>(reports.weights[r]);
    total.stop = std::max(total.stop, static_cast<int>(reports.stops[r]));
  }
  total.gradient_weight = run.exchange->weight(reports);
  if (const int r = total.not_finite; r >= 0 && !run.scaling->skips())
    throw NumericError(fmt::format("the loss of rank {} is {} in step {}. Lower the learning "
                                   "rate, clip gradients, or look at this "
                                   "step's data; weights are those of step {}",
                                   r, reports.sums[static_cast<size_t>(r)], run.step + 1, run.step),
                       {r, -1, "loss", run.step + 1});
  return total;
}

namespace {

std::shared_ptr<const NormParts> norm_parts(Run& run) {
  auto parts = run.gradients->norm_parts();
  return parts ? parts : std::make_shared<const NormParts>(run.gradients->owned());
}

GradVerdict what_is_not_finite(Run& run, const GlobalLoss& loss, const GradNorm& norm) {
  const Gradients::NotFinite found = run.gradients->not_finite();
  if (found.rank >= 0) return {false, found.rank, found.parameter};
  // Each rank's part was finite but their sum is not, so no rank can be named.
  if (!norm.finite) return {false, 0, first_non_finite(run.gradients->owned(), *norm_parts(run))};
  if (loss.not_finite >= 0) return {false, loss.not_finite, "(the loss)"};
  return {};
}

}  // namespace

Verdict judge(Run& run, const GlobalLoss& loss, double grad_scale, double clip_norm) {
  Span span("optimizer", "norm");
  Verdict verdict;
  verdict.norm = grad_norm(run.gradients->owned(), *norm_parts(run), clip_norm, grad_scale);
  verdict.gradients = what_is_not_finite(run, loss, verdict.norm);
  if (!verdict.finite() && !run.scaling->skips())
    throw NumericError(
        fmt::format("the gradient of '{}' on rank {} is not finite in step {} although the loss "
                    "is. Lower the learning rate; weights are those of step {}",
                    verdict.gradients.parameter, verdict.gradients.rank, run.step + 1, run.step),
        {verdict.gradients.rank, -1, "gradient", run.step + 1});
  return verdict;
}

}  // namespace trireme
