// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/prune.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme {
namespace {

nlohmann::ordered_json names_json(const std::vector<int64_t>& steps) {
  auto list = nlohmann::ordered_json::array();
  for (int64_t step : steps) list.push_back(step_folder_name(step));
  return list;
}

}  // namespace

int checkpoint_prune(const CheckpointFlags& flags) {
  check_folder(flags.path);
  const PrunePlan plan =
      prune_run(flags.path, {.keep = flags.keep, .every = flags.keep_every}, flags.dry_run);
  check<UsageError>(plan.latest >= 0, "no checkpoint in {}", flags.path);
  std::string text;
  for (int64_t step : plan.go)
    text +=
        fmt::format("{} {}\n", flags.dry_run ? "would delete" : "deleted", step_folder_name(step));
  for (int64_t step : plan.keep)
    text += fmt::format("kept {}{}\n", step_folder_name(step),
                        step == plan.latest  ? ", the latest"
                        : step > plan.latest ? ", later than the latest"
                                             : "");
  deliver(flags, text,
          {{"run", flags.path},
           {"dry_run", flags.dry_run},
           {"latest", step_folder_name(plan.latest)},
           {"deleted", names_json(plan.go)},
           {"kept", names_json(plan.keep)},
           {"damaged", names_json(plan.damaged)}});
  for (int64_t step : plan.damaged)
    log_warn("{} is damaged, or of a newer version: it was neither counted nor deleted",
             step_folder_name(step));
  return kExitDone;
}

}  // namespace trireme
