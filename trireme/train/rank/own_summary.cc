// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/own_summary.h"

#include <fmt/core.h>

#include <cstdio>

#include "trireme/base/check.h"
#include "trireme/config/sections/training.h"
#include "trireme/front/config_words.h"
#include "trireme/front/refusals.h"
#include "trireme/launch/flags/options.h"
#include "trireme/planner/device_memory.h"
#include "trireme/planner/model_table.h"
#include "trireme/train/rank/ask_device.h"

namespace trireme {
namespace {

constexpr char kHelp[] =
    R"(Show the model's parameters and what each rank will hold in memory, before training.

Usage: {program} summary CONFIG [CONFIG …] [--set KEY=VALUE] [--nproc-per-node N]

The model is built once, in this process. Activations are not in the figures: they are known when a step has run.
)";

}  // namespace

int own_summary(const MainProgram& program, const std::string& typed, const Words& words) {
  std::vector<std::string> rest;
  const auto options = launch::extract_run_options(words, &rest);
  launch::refuse_several_nodes(options);
  const ConfigWords read = read_config_words("summary", typed + " summary --help", {}, rest);
  if (read.help) {
    std::fputs(fmt::format(kHelp, fmt::arg("program", typed)).c_str(), stdout);
    return kExitDone;
  }
  check<UsageError>(!read.files.empty(),
                    "summary: name a configuration, as in '{} summary config.json'", typed);
  const Config config = program.load(ConfigInputs::from(read.files, read.sets));
  check_layout(config, options.nproc_per_node, false);
  const std::string fault =
      program.fault ? program.fault(config, options.nproc_per_node) : std::string();
  check<UsageError>(fault.empty(), "{}", fault);
  const MemoryPlan plan = plan_memory(config, options.nproc_per_node, program.shape(config));
  std::string text = model_table(plan.model) + "\nMemory of " +
                     (plan.pipeline.empty() ? "each" : "the fullest") +
                     " rank: " + plan.describe() + "; without activations\n\n";
  const DeviceAnswer found = find_device(config, {}, ask_device);
  if (!found.refusal.empty() || (!found.kind.empty() && found.kind != "cpu")) {
    const std::string asked = config.section<TrainingSection>().device;
    const std::string kind = found.kind.empty() ? asked.substr(0, asked.find(':')) : found.kind;
    text += placed_table(place_memory(config, plan), kind, false);
    if (!found.refusal.empty())
      text += "\nOn the device: this program refuses to train: " + found.refusal + "\n";
    std::fputs(text.c_str(), stdout);
    return kExitDone;
  }
  std::vector<std::pair<const char*, int64_t>> rows{{"weights", plan.rank.weights},
                                                    {"gradients", plan.rank.gradients},
                                                    {"optimizer", plan.rank.optimizer},
                                                    {"buffers", plan.rank.buffers}};
  if (plan.rank.snapshots > 0) rows.emplace_back("snapshots", plan.rank.snapshots);
  rows.emplace_back("total", plan.rank.total());
  for (const auto& [name, bytes] : rows)
    text += fmt::format("{:<12}{:>12}\n", name, mebibytes(bytes));
  if (!plan.pipeline.empty()) text += "\nEach rank of the pipeline:\n\n" + pipeline_table(plan);
  if (const std::string stages = stage_table(plan); !stages.empty())
    text += "\nEach stage, of its rank's memory:\n\n" + stages;
  std::fputs(text.c_str(), stdout);
  return kExitDone;
}

}  // namespace trireme
