// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/retention.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace trireme {
namespace {

bool has_loss(const SavedStep& s) { return s.loss && !std::isnan(*s.loss); }

/// The first `count` in this order.
template <class Better>
void keep_first(std::vector<SavedStep> steps, int64_t count, const Better& better,
                std::set<int64_t>* kept) {
  std::sort(steps.begin(), steps.end(), better);
  const auto n = std::min(static_cast<size_t>(std::max<int64_t>(count, 0)), steps.size());
  for (size_t i = 0; i < n; ++i) kept->insert(steps[i].step);
}

bool newer(const SavedStep& a, const SavedStep& b) { return a.step > b.step; }
bool better(const SavedStep& a, const SavedStep& b) {
  return *a.loss != *b.loss ? *a.loss < *b.loss : a.step > b.step;
}

}  // namespace

std::vector<int64_t> steps_to_delete(const std::vector<SavedStep>& steps, int64_t current,
                                     const RetentionRule& rule) {
  std::vector<SavedStep> own, evaluated;
  std::set<int64_t> kept{current};
  for (const SavedStep& s : steps) {
    if (s.step > current) continue;
    own.push_back(s);
    if (has_loss(s)) evaluated.push_back(s);
    if (s.named || (rule.every > 0 && s.step % rule.every == 0)) kept.insert(s.step);
  }
  keep_first(own, rule.keep, newer, &kept);
  keep_first(evaluated, rule.best, better, &kept);
  std::vector<int64_t> gone;
  for (const SavedStep& s : own)
    if (!kept.contains(s.step)) gone.push_back(s.step);
  std::sort(gone.begin(), gone.end());
  return gone;
}

std::optional<int64_t> best_step(const std::vector<SavedStep>& steps, int64_t current) {
  std::vector<SavedStep> evaluated;
  for (const SavedStep& s : steps)
    if (s.step <= current && has_loss(s)) evaluated.push_back(s);
  if (evaluated.empty()) return std::nullopt;
  return std::min_element(evaluated.begin(), evaluated.end(), better)->step;
}

bool is_among_best(const std::vector<SavedStep>& steps, double loss, int64_t best) {
  if (std::isnan(loss)) return false;
  const auto ahead = std::count_if(steps.begin(), steps.end(), [&](const SavedStep& s) {
    return has_loss(s) && *s.loss < loss;
  });
  return ahead < best;
}

}  // namespace trireme
