// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/kept_steps.h"

#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/run_folder/step_links.h"
#include "trireme/train/saving.h"

namespace trireme {

KeptSteps::KeptSteps(std::string folder, const CheckpointSection& s)
    : folder_(std::move(folder)), rule_{s.keep, s.keep_best, s.keep_every}, names_(s.names) {}

std::vector<SavedStep> KeptSteps::steps() {
  std::set<int64_t> named;
  if (names_)
    for (const auto& [name, step] : step_links(folder_))
      if (link_keeps_step(name)) named.insert(step);
  std::vector<SavedStep> steps;
  for (int64_t step : list_steps(folder_)) {
    if (rule_.best > 0 && !losses_.contains(step))
      losses_[step] = number_in_step(folder_ + "/" + step_folder_name(step), kHeldOutLoss);
    steps.push_back({step, rule_.best > 0 ? losses_[step] : std::nullopt, named.contains(step)});
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

void KeptSteps::published(int64_t step, std::optional<double> loss,
                          const std::vector<std::string>& names) {
  name(step, names);
  std::lock_guard lock(mutex_);
  losses_[step] = loss;
  if (names_) {
    const std::optional<int64_t> best = rule_.best > 0 ? best_step(steps(), step) : std::nullopt;
    link(kLastLink, step);
    if (best) link(kBestLink, *best);
  }
  prune_steps(folder_, steps(), step, rule_);
}

void KeptSteps::name(int64_t step, const std::vector<std::string>& names) {
  std::lock_guard lock(mutex_);
  for (const std::string& name : names) link(name, step);
}

void KeptSteps::link(const std::string& name, int64_t step) const {
  try {
    link_step(folder_, name, step);
  } catch (const ResourceError& e) {
    log_warn("{}. The run goes on, and {} is there", e.what(), step_folder_name(step));
  }
}

}  // namespace trireme
