// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/prune.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme {
namespace {

// A step of a newer version is not ours to judge.
bool is_good_at_sight(const std::string& folder) {
  try {
    return glance_at_step(folder).good();
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace

PrunePlan plan_prune(const std::vector<int64_t>& good, int64_t latest, const RetentionRule& rule) {
  PrunePlan plan;
  plan.latest = latest;
  std::vector<SavedStep> steps;
  for (int64_t step : good) steps.push_back({step});
  plan.go = steps_to_delete(steps, latest, rule);
  std::set_difference(good.begin(), good.end(), plan.go.begin(), plan.go.end(),
                      std::back_inserter(plan.keep));
  return plan;
}

PrunePlan prune_run(const std::string& run_dir, const RetentionRule& rule, bool rehearsal) {
  check<UsageError>(rule.best == 0, "prune_run: the best steps of {} are not known here", run_dir);
  std::optional<SaverLock> lock;
  if (!rehearsal) {
    lock = SaverLock::try_take(run_dir);
    check<ResourceError>(lock.has_value(),
                         "another process is saving a checkpoint in {}: nothing was deleted; try "
                         "again when it is done",
                         run_dir);
  }
  const std::vector<int64_t> steps = list_steps(run_dir);
  if (steps.empty()) return {};
  const int64_t latest = step_of_folder(find_checkpoint(run_dir));
  std::vector<int64_t> good, damaged;
  for (int64_t step : steps)
    (is_good_at_sight(run_dir + "/" + step_folder_name(step)) ? good : damaged).push_back(step);
  PrunePlan plan = plan_prune(good, latest, rule);
  plan.damaged = damaged;
  if (rehearsal) return plan;
  const std::vector<std::string> hidden = hide_steps(run_dir, plan.go);
  lock.reset();  // a save need not wait for the disk
  for (const std::string& folder : hidden) remove_tree(folder);
  return plan;
}

}  // namespace trireme
