// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/kept_steps.h"

#include <utility>

#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/train/saving.h"

namespace trireme {

KeptSteps::KeptSteps(std::string folder, const CheckpointSection& s)
    : folder_(std::move(folder)), rule_{s.keep, s.keep_best, s.keep_every} {}

std::vector<SavedStep> KeptSteps::steps() {
  std::vector<SavedStep> steps;
  for (int64_t step : list_steps(folder_)) {
    if (rule_.best > 0 && !losses_.contains(step))
      losses_[step] = number_in_step(folder_ + "/" + step_folder_name(step), kHeldOutLoss);
    steps.push_back({step, rule_.best > 0 ? losses_[step] : std::nullopt});
  }
  return steps;
}

bool KeptSteps::is_among_best(int64_t step, double loss, const std::optional<SavedStep>& coming) {
  std::lock_guard lock(mutex_);
  std::vector<SavedStep> before = steps();
  std::erase_if(before, [&](const SavedStep& s) {
    return s.step >= step || (coming && s.step == coming->step);
  });
  if (coming && coming->step < step) before.push_back(*coming);
  return trireme::is_among_best(before, loss, rule_.best);
}

void KeptSteps::published(int64_t step, std::optional<double> loss) {
  std::lock_guard lock(mutex_);
  losses_[step] = loss;
  prune_steps(folder_, steps(), step, rule_);
}

}  // namespace trireme
