// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/exchange.h"
#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/exchange/export_weights.h"
#include "trireme/interop/weights/gpt2_names.h"

namespace trireme {
namespace {

constexpr std::string_view kModel = "model.";
constexpr uint64_t kDefaultShard = 5'000'000'000;

bool is_torch(const CheckpointFlags& flags) {
  if (!flags.format.empty()) return flags.format == "torch";
  const std::string& out = flags.other;
  return out.ends_with(".pt") || out.ends_with(".pth") || out.ends_with(".bin");
}

void check_flags(const CheckpointFlags& flags, bool torch) {
  check<UsageError>(!torch || flags.max_shard.empty(),
                    "--max-shard-size is for --format safetensors: a .pt is one file");
  check<UsageError>(torch || !flags.other.ends_with(".safetensors"),
                    "--format safetensors writes a folder, with model.safetensors in it: name a "
                    "folder in place of {}",
                    flags.other);
  const bool gpt2 = flags.names == "gpt2";
  check<UsageError>(!gpt2 || !flags.state, "--names gpt2 is for weights alone: leave --state out");
  check<UsageError>(gpt2 || flags.heads == 0, "--heads goes with --names gpt2");
  check<UsageError>(!gpt2 || !torch || flags.heads == 0,
                    "--heads goes into config.json, which a .pt file has not");
}

// Of the run's config.json; 0: not told.
int64_t heads_in(const std::filesystem::path& run) {
  const std::string path = (run.empty() ? std::filesystem::path(".") : run) / "config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0;
  const auto json = nlohmann::json::parse(read_file(path), nullptr, false);
  const auto pointer = nlohmann::json::json_pointer("/model/heads");
  if (json.is_discarded() || !json.contains(pointer)) return 0;
  const auto& heads = json.at(pointer);
  return heads.is_number_integer() && heads.get<int64_t>() > 0 ? heads.get<int64_t>() : 0;
}

int64_t dim_of(const StepReader& step, const std::string& name, size_t dim) {
  const auto found = step.index().tensors.find(name);
  check<UsageError>(found != step.index().tensors.end() && found->second.shape().size() == 2,
                    "{} has no matrix '{}': it is of no gpt", step.folder(), name);
  return found->second.shape()[dim];
}

void add_gpt2_config(const StepReader& step, const CheckpointFlags& flags, bool tied,
                     ExportPlan& plan) {
  interop::Gpt2Config config;
  config.vocab = dim_of(step, "model.wte.weight", 0);
  config.width = dim_of(step, "model.wte.weight", 1);
  config.context = dim_of(step, "model.wpe.weight", 0);
  const auto& tensors = step.index().tensors;
  while (tensors.count(fmt::format("model.blocks.{}.attn.qkv.weight", config.layers)))
    ++config.layers;
  config.tied_head = tied;
  config.heads = flags.heads;
  if (config.heads == 0)
    config.heads = heads_in(std::filesystem::path(step.folder()).parent_path());
  if (config.heads == 0) config.heads = heads_in(flags.named);
  check<UsageError>(config.heads > 0,
                    "how many heads the model has is not told by its weights, and there is no "
                    "config.json with model.heads beside {}: give --heads N",
                    step.folder());
  check<UsageError>(config.width % config.heads == 0, "a width of {} does not divide into {} heads",
                    config.width, config.heads);
  plan.more_files["config.json"] = interop::gpt2_config_json(config);
}

void name_as_gpt2(const StepReader& step, const CheckpointFlags& flags, bool torch,
                  ExportPlan& plan) {
  for (ExportedTensor& t : plan.tensors) {
    const auto theirs = interop::gpt2_name(t.out);
    check<UsageError>(theirs.has_value(), "{} has a tensor '{}', which no GPT-2 has", step.folder(),
                      t.out);
    t.out = theirs->name, t.transposed = theirs->transposed;
  }
  const bool tied = step.index().tensors.count("model.head.weight") == 0;
  if (!torch) return add_gpt2_config(step, flags, tied, plan);
  dim_of(step, "model.wte.weight", 0);
  // A state_dict of GPT2LMHeadModel has it under both names.
  if (tied)
    plan.tensors.push_back({"model.wte.weight", "lm_head.weight", false, "transformer.wte.weight"});
}

void map_names(const std::string& folder, const CheckpointFlags& flags, ExportPlan& plan) {
  for (const auto& [from, to] : map_rules(flags.map)) {
    size_t renamed = 0;
    for (ExportedTensor& t : plan.tensors)
      for (std::string* name : {&t.out, &t.same_as}) {
        if (name->empty() || !name->starts_with(from)) continue;
        name->replace(0, from.size(), to);
        ++renamed;
      }
    check<UsageError>(renamed > 0, "--map: {} has no tensor whose name begins with '{}'", folder,
                      from);
  }
  std::map<std::string, std::string> seen;
  for (const ExportedTensor& t : plan.tensors) {
    check<UsageError>(!t.out.empty() && t.out != "__metadata__",
                      "'{}' would be called '{}', a name that files reserve", t.name, t.out);
    const auto [other, fresh] = seen.emplace(t.out, t.name);
    check<UsageError>(fresh, "'{}' and '{}' would both be called '{}'", other->second, t.name,
                      t.out);
  }
}

ExportPlan plan_of(const StepReader& step, const CheckpointFlags& flags, bool torch) {
  ExportPlan plan;
  plan.whole_state = flags.state;
  for (const auto& [name, saved] : step.index().tensors) {
    const bool weight = name.starts_with(kModel);
    if (weight || flags.state)
      plan.tensors.push_back({name, weight ? name.substr(kModel.size()) : name});
  }
  check<UsageError>(!plan.tensors.empty(), "{} holds no weights", step.folder());
  if (flags.names == "gpt2") name_as_gpt2(step, flags, torch, plan);
  map_names(step.folder(), flags, plan);
  return plan;
}

int export_step(const std::string& folder, const CheckpointFlags& flags, bool torch) {
  const uint64_t most = flags.max_shard.empty() ? kDefaultShard : size_of_text(flags.max_shard);
  StepReader step(folder);
  const ExportPlan plan = plan_of(step, flags, torch);
  verify_exported(step, plan);
  const Exported out = torch ? export_torch(step, plan, flags.other, flags.force)
                             : export_safetensors(step, plan, flags.other, most, flags.force);
  deliver(flags,
          fmt::format("{}: {} tensors, {}, of {}, in {} {}\n", shown(flags.other),
                      plan.tensors.size(), bytes_text(out.bytes), shown(step.folder()),
                      out.files.size(), out.files.size() == 1 ? "file" : "files"),
          {{"step", step.folder()},
           {"out", flags.other},
           {"format", torch ? "torch" : "safetensors"},
           {"names", flags.names.empty() ? "plain" : flags.names},
           {"tensors", plan.tensors.size()},
           {"bytes", out.bytes},
           {"files", out.files}});
  return kExitDone;
}

}  // namespace

int checkpoint_export(const CheckpointFlags& flags) {
  const bool torch = is_torch(flags);
  check_flags(flags, torch);
  const std::string folder = step_folder_at(flags.path);
  return reading_steps({folder}, [&] { return export_step(folder, flags, torch); });
}

}  // namespace trireme
