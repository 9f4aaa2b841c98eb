// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/prune.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/run_folder/step_links.h"
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

PrunePlan plan_prune(const std::vector<SavedStep>& good, int64_t latest,
                     const RetentionRule& rule) {
  PrunePlan plan;
  plan.latest = latest;
  const std::vector<int64_t> go = steps_to_delete(good, latest, rule);
  for (const SavedStep& step : good)
    (std::binary_search(go.begin(), go.end(), step.step) ? plan.go : plan.keep).push_back(step);
  return plan;
}

PrunePlan prune_run(const std::string& run_dir, const RetentionRule& rule, bool rehearsal) {
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
  std::vector<SavedStep> good;
  std::vector<int64_t> damaged;
  std::set<int64_t> named;
  for (const auto& [name, step] : step_links(run_dir))
    if (link_keeps_step(name)) named.insert(step);
  for (int64_t step : steps) {
    const std::string folder = run_dir + "/" + step_folder_name(step);
    if (is_good_at_sight(folder))
      good.push_back({step, number_in_step(folder, kHeldOutLoss), named.contains(step)});
    else
      damaged.push_back(step);
  }
  check<UsageError>(
      rule.best == 0 || std::any_of(good.begin(), good.end(),
                                    [](const SavedStep& s) { return s.loss.has_value(); }),
      "no step of {} has a held-out loss, so none is among the best: the run was not "
      "evaluated where it saved",
      run_dir);
  PrunePlan plan = plan_prune(good, latest, rule);
  plan.damaged = damaged;
  if (rehearsal) return plan;
  std::vector<int64_t> go;
  for (const SavedStep& step : plan.go) go.push_back(step.step);
  const std::vector<std::string> hidden = hide_steps(run_dir, go);
  lock.reset();  // a save that waits for it need not wait for the disk, too
  for (const std::string& folder : hidden) remove_tree(folder);
  return plan;
}

}  // namespace trireme
