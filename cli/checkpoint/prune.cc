// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/prune.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/step_links.h"

namespace trireme {
namespace {

nlohmann::ordered_json names_json(const std::vector<int64_t>& steps) {
  auto list = nlohmann::ordered_json::array();
  for (int64_t step : steps) list.push_back(step_folder_name(step));
  return list;
}

std::vector<int64_t> numbers_of(const std::vector<SavedStep>& steps) {
  std::vector<int64_t> numbers;
  for (const SavedStep& s : steps) numbers.push_back(s.step);
  return numbers;
}

/// Of the links for whose sake it stays.
std::string names_text(const std::string& run, const SavedStep& step) {
  std::string text;
  if (!step.named) return text;
  for (const auto& [name, target] : step_links(run))
    if (target == step.step && link_keeps_step(name)) text += ", " + name;
  return text;
}

// Whoever deletes the best step should see it.
std::string loss_text(const SavedStep& step) {
  return step.loss ? fmt::format(", held-out loss {:.6g}", *step.loss) : "";
}

}  // namespace

int checkpoint_prune(const CheckpointFlags& flags) {
  check_folder(flags.path);
  const PrunePlan plan = prune_run(
      flags.path, {.keep = flags.keep, .best = flags.keep_best, .every = flags.keep_every},
      flags.dry_run);
  check<UsageError>(plan.latest >= 0, "no checkpoint in {}", flags.path);
  std::string text;
  for (const SavedStep& s : plan.go)
    text += fmt::format("{} {}{}\n", flags.dry_run ? "would delete" : "deleted",
                        step_folder_name(s.step), loss_text(s));
  for (const SavedStep& s : plan.keep)
    text += fmt::format("kept {}{}{}{}\n", step_folder_name(s.step),
                        s.step == plan.latest  ? ", the latest"
                        : s.step > plan.latest ? ", later than the latest"
                                               : "",
                        names_text(flags.path, s), loss_text(s));
  deliver(flags, text,
          {{"run", flags.path},
           {"dry_run", flags.dry_run},
           {"latest", step_folder_name(plan.latest)},
           {"deleted", names_json(numbers_of(plan.go))},
           {"kept", names_json(numbers_of(plan.keep))},
           {"damaged", names_json(plan.damaged)}});
  for (int64_t step : plan.damaged)
    log_warn("{} is damaged, unreadable, or of a newer version: it was neither counted nor deleted",
             step_folder_name(step));
  return kExitDone;
}

}  // namespace trireme
