// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/refusals.h"

#include <fmt/core.h>

#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/config/file_states.h"
#include "trireme/config/sections/data.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/training.h"
#include "trireme/front/host_memory.h"
#include "trireme/planner/model_part.h"

namespace trireme {
namespace {

bool power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

std::string wrong_data(const Config& c) {
  const auto data = c.section<DataSection>();
  const std::string &type = data.type, model = c.section<ModelSection>().type;
  const bool from_files = type == "corpus" || type == "documents";
  if (type != "dummy" && (model == "gpt") != from_files)
    return fmt::format(
        "{}: data.type '{}' does not suit a model of type '{}'; gpt reads corpus, documents or "
        "dummy, the others read mnist, digits or dummy",
        c.origin("data.type"), type, model);
  if (type == "mnist" && !data.path)
    return "data.type is mnist, but data.path is not given: name the folder with the IDX files";
  if (!from_files) return "";
  for (const auto& path : data.paths) {
    std::error_code error;
    const bool pattern = path.find_first_of("*?[") != std::string::npos;
    if (!pattern && !std::filesystem::exists(path, error))
      return fmt::format("{}: {} does not exist; check the path", c.origin("data.paths"), path);
  }
  return "";
}

std::string wrong_leaves(const Config& c, int ranks) {
  if (!c.section<TrainingSection>().reproducible) return "";
  const Batches batches = c.resolve_batches(ranks);
  const int64_t leaves = batches.accumulation * batches.dp;
  if (power_of_two(leaves) && power_of_two(batches.dp)) return "";
  return fmt::format("training.reproducible: {} leaves on {} ranks; both must be powers of two",
                     leaves, batches.dp);
}

}  // namespace

std::vector<std::string> refused_layout(const Config& config, int ranks, bool built_in_model) {
  config.resolve_batches(ranks);
  std::vector<std::string> all;
  for (const std::string& sentence :
       {wrong_leaves(config, ranks), built_in_model ? fault_of_division(config, ranks) : "",
        fault_of_file_states(config, ranks)})
    if (!sentence.empty()) all.push_back(sentence);
  return all;
}

void check_layout(const Config& config, int ranks, bool built_in_model) {
  for (const std::string& sentence : refused_layout(config, ranks, built_in_model))
    fail<UsageError>("{}", sentence);
}

std::vector<std::string> refusals_of(const Config& config, int ranks, bool built_in_model) {
  std::vector<std::string> all = refused_layout(config, ranks, built_in_model);
  const std::string data = built_in_model ? wrong_data(config) : "";
  if (!data.empty()) all.insert(all.begin(), data);
  return all;
}

std::string MemoryCheck::refusal() const {
  return verdict.text + ". " + memory_advice(plan) + "; --force starts it all the same";
}

MemoryCheck check_memory(const Config& config, int ranks, int here) {
  MemoryCheck check;
  try {
    check.plan = plan_memory(config, ranks);
    check.known = true;
  } catch (const UsageError&) {
    return check;  // what the planner does not know may well train
  }
  check.verdict = judge_memory(check.plan.mean, here, host_memory());
  return check;
}

}  // namespace trireme
