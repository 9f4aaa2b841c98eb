// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/verdict.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"

namespace trireme {

StepFacts facts_of_step(const Run& run) {
  return run.tally->agree({run.gradients->reports(), run.gradients->not_finite()});
}

GlobalLoss global_loss(const Run& run, const StepFacts& facts) {
  const Gradients::Reports& reports = facts.reports;
  GlobalLoss total;
  double bad = 0;
  for (size_t r = 0; r < reports.sums.size(); ++r) {
    if (!std::isfinite(reports.sums[r]) && total.not_finite < 0) {
      total.not_finite = run.tally->world_rank(static_cast<int>(r));
      bad = reports.sums[r];
    }
    total.sum += reports.sums[r];
    total.weight += static_cast<int64_t>(reports.weights[r]);
    total.stop = std::max(total.stop, static_cast<int>(reports.stops[r]));
  }
  total.gradient_weight = run.exchange->weight(reports);
  if (const int r = total.not_finite; r >= 0 && !run.scaling->skips())
    throw NumericError(fmt::format("the loss of rank {} is {} in step {}. Lower the learning "
                                   "rate, clip gradients, or look at this "
                                   "step's data; weights are those of step {}",
                                   r, bad, run.step + 1, run.step),
                       {r, -1, "loss", run.step + 1});
  return total;
}

namespace {

GradVerdict what_is_not_finite(Run& run, const StepFacts& facts, const GlobalLoss& loss,
                               const GradNorm& norm) {
  const Gradients::NotFinite& found = facts.not_finite;
  if (found.rank >= 0) return {false, found.rank, found.parameter};
  // Each rank's part was finite but their sum is not, so no rank can be named.
  if (!norm.finite) return {false, 0, first_non_finite(run.gradients->owned(), *run.norm_parts)};
  if (loss.not_finite >= 0) return {false, loss.not_finite, "(the loss)"};
  return {};
}

}  // namespace

Verdict judge(Run& run, const StepFacts& facts, const GlobalLoss& loss, double grad_scale,
              double clip_norm) {
  Span span("optimizer", "norm");
  Verdict verdict;
  verdict.norm = grad_norm(run.gradients->owned(), *run.norm_parts, clip_norm, grad_scale);
  verdict.gradients = what_is_not_finite(run, facts, loss, verdict.norm);
  if (!verdict.finite() && !run.scaling->skips())
    throw NumericError(
        fmt::format("the gradient of '{}' on rank {} is not finite in step {} although the loss "
                    "is. Lower the learning rate; weights are those of step {}",
                    verdict.gradients.parameter, verdict.gradients.rank, run.step + 1, run.step),
        {verdict.gradients.rank, -1, "gradient", run.step + 1});
  return verdict;
}

}  // namespace trireme
