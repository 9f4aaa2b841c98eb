// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/ask_worker.h"
#include "cli/verbs.h"
#include "cli/worker_program.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/config/sections/training.h"
#include "trireme/front/config_words.h"
#include "trireme/front/host_memory.h"
#include "trireme/front/refusals.h"
#include "trireme/front/start_ranks.h"
#include "trireme/launch/flags/options.h"
#include "trireme/planner/device_memory.h"
#include "trireme/planner/memory_plan.h"
#include "trireme/planner/model_table.h"

namespace trireme {
namespace {

const char kSummaryHelp[] =
    R"(Show a model's parameters and what each rank will hold in memory, before training.

Usage: trireme summary CONFIG [CONFIG …] [FLAGS]

The table is PyTorch Lightning's. The plan below it is computed from the configuration, for as many ranks as asked for;
with --measure those ranks make three steps, and what they held stands beside it (the rank that held the most; its
buffers include what the data source keeps, which the plan does not know). They save nothing: with checkpoint.async
they make the two snapshots of what a rank writes, and let go of them.

Where ranks compute on a device (the key device), its memory and the host's have a column each, what is measured is the
device's, and each is compared with what there is.

Examples:
  trireme summary examples/convnet.json
  trireme summary examples/gpt.json --nproc-per-node 8 --set zero_optimization.stage=3
  trireme summary examples/gpt.json ds_config.json --nproc-per-node 2 --measure
  trireme summary examples/gpt.json --json -

Flags:
  --set KEY=VALUE      set one key (trireme config show lists them); may be given often
  --measure            run it and measure
  --json FILE          the same figures as JSON; - is standard output
  --help
and those of `trireme run`:
)";

struct SummaryFlags {
  std::vector<std::string> files, sets;
  std::string json;
  bool measure = false, help = false;
};

SummaryFlags parse_summary_flags(const std::vector<std::string>& words) {
  SummaryFlags f;
  ConfigWords read = read_config_words(
      "summary", "trireme summary --help",
      {{"--measure", OwnFlag::nothing, [&](const std::string&) { f.measure = true; }},
       {"--json", OwnFlag::a_value, [&](const std::string& v) { f.json = v; }}},
      words);
  f.files = std::move(read.files), f.sets = std::move(read.sets), f.help = read.help;
  return f;
}

struct Row {
  const char* name;
  int64_t RankMemory::*planned;
};
constexpr Row kRows[] = {{"weights", &RankMemory::weights},
                         {"gradients", &RankMemory::gradients},
                         {"optimizer", &RankMemory::optimizer},
                         {"activations", &RankMemory::activations},
                         {"buffers", &RankMemory::buffers}};

struct Measured {
  RankMemory rank;  // on its device
  int64_t shared = 0, resident = -1;
  int64_t host_optimizer = 0, device_total = 0;
};

/// What a rank computes on, and where its memory then lies.
struct Where {
  DeviceAnswer found;
  std::string kind;  // "cuda"; "": the CPU, and the rest says nothing
  PlacedMemory memory;
  MemoryVerdict verdict;  // of the device
};

/// Starts the ranks; nothing where they fail (they said why) and the exit code in `code`.
std::optional<Measured> measure(const Config& config, const Batches& batches,
                                const launch::RunOptions& options, int* code) {
  const PrivateFolder folder("trireme-summary");
  const std::string file = folder / "config.json", out = folder / "measured.json";
  write_file_atomic(file, config.to_json(&batches));
  *code = start_ranks(options, {worker_program(), "measure", "--config", file, "--out", out},
                      launch::FailureReport::one_line);
  if (*code != kExitDone || options.dry_run) return std::nullopt;
  const auto json = nlohmann::json::parse(read_file(out));
  Measured m;
  for (const Row& row : kRows) m.rank.*row.planned = json.at(row.name).get<int64_t>();
  m.rank.snapshots = json.at("snapshots").get<int64_t>();
  m.shared = json.at("shared").get<int64_t>();
  m.resident = json.at("resident").get<int64_t>();
  m.host_optimizer = json.at("host_optimizer").get<int64_t>();
  m.device_total = json.at("device_total").get<int64_t>();
  return m;
}

Where where_of(const Config& config, const MemoryPlan& plan) {
  Where where;
  where.found = find_device(config, {.memory = true}, ask_worker);
  const std::string asked = config.section<TrainingSection>().device;
  where.kind = where.found.kind.empty() ? asked.substr(0, asked.find(':')) : where.found.kind;
  if (where.kind == "cpu" || where.kind == "auto") where.kind.clear();
  if (!where.kind.empty()) where.memory = place_memory(config, plan);
  return where;
}

/// Ranks of a divided model differ: by a row, or by a stage of a pipeline.
std::string heading(const MemoryPlan& plan) {
  return fmt::format("\nMemory of {} rank: {}\n\n",
                     plan.degrees.model() > 1 ? "the fullest" : "each", plan.describe());
}

std::string of_each_stage(const MemoryPlan& plan) {
  if (plan.pipeline.empty()) return "";
  const std::string stages = stage_table(plan);
  return "\nEach rank of the pipeline, predicted:\n\n" + pipeline_table(plan) +
         (stages.empty() ? "" : "\nEach stage, of its rank's memory:\n\n" + stages);
}

std::string placed_text(const MemoryPlan& plan, const Where& where,
                        const std::optional<Measured>& measured) {
  std::string out = heading(plan) + placed_table(where.memory, where.kind, true,
                                                 measured ? &measured->rank : nullptr);
  if (measured)
    out += fmt::format("\nmeasured in host memory: optimizer {}, snapshots {}\n",
                       mebibytes(measured->host_optimizer), mebibytes(measured->rank.snapshots));
  return out + of_each_stage(plan);
}

std::string plan_text(const MemoryPlan& plan, const std::optional<Measured>& measured) {
  std::string out = heading(plan);
  auto line = [&](const std::string& name, int64_t planned, int64_t found) {
    out += fmt::format("{:<12}{:>12}", name, mebibytes(planned));
    if (measured) out += fmt::format("{:>12}", mebibytes(found));
    out += "\n";
  };
  out += fmt::format("{:<12}{:>12}{}\n", "", "predicted", measured ? "    measured" : "");
  for (const Row& row : kRows)
    line(row.name, plan.rank.*row.planned, measured ? measured->rank.*row.planned : 0);
  if (plan.rank.snapshots > 0)
    line("snapshots", plan.rank.snapshots, measured ? measured->rank.snapshots : 0);
  line("total", plan.rank.total(), measured ? measured->rank.total() : 0);
  if (measured) out += fmt::format("\nof that in shared memory: {}\n", mebibytes(measured->shared));
  if (measured && measured->resident >= 0)
    out += fmt::format("resident, all ranks together (PSS, less the bare processes): {}\n",
                       mebibytes(measured->resident));
  return out + of_each_stage(plan);
}

const char* name_of(MemoryVerdict::Fit fit) {
  using Fit = MemoryVerdict::Fit;
  return fit == Fit::fits ? "fits" : fit == Fit::tight ? "tight" : "impossible";
}

nlohmann::ordered_json plan_json(const MemoryPlan& plan, const MemoryVerdict& verdict,
                                 const Where& where, const std::optional<Measured>& measured) {
  nlohmann::ordered_json out;
  out["parameters"] = plan.model.numel();
  out["modules"] = nlohmann::ordered_json::array();
  for (const auto& m : plan.model.modules)
    out["modules"].push_back({{"name", m.name}, {"type", m.type}, {"parameters", m.parameters}});
  out["dp"] = plan.degrees.dp;
  out["tp"] = plan.degrees.tp;
  out["pp"] = plan.degrees.pp;
  out["zero_stage"] = plan.sharding.stage;
  out["dp_shard"] = plan.sharding.dp_shard;
  out["dp_replicate"] = plan.sharding.dp_replicate;
  auto figures = [](const RankMemory& m) {
    nlohmann::ordered_json json;
    for (const Row& row : kRows) json[row.name] = m.*row.planned;
    if (m.snapshots > 0) json["snapshots"] = m.snapshots;
    json["total"] = m.total();
    return json;
  };
  out["predicted"] = figures(plan.rank);
  if (!plan.pipeline.empty()) {
    out["pipeline"] = nlohmann::ordered_json::array();
    for (const PipelineRank& rank : plan.pipeline) {
      nlohmann::ordered_json row{{"blocks", rank.blocks}};
      row.update(figures(rank.memory));
      for (const StageMemory& s : rank.stages)
        row["stages"].push_back({{"stage", s.stage},
                                 {"blocks", s.blocks},
                                 {"weights", s.memory.weights},
                                 {"gradients", s.memory.gradients},
                                 {"optimizer", s.memory.optimizer},
                                 {"activations", s.memory.activations}});
      out["pipeline"].push_back(std::move(row));
    }
  }
  out["on_this_machine"] = {{"fit", name_of(verdict.fit)}, {"why", verdict.text}};
  if (!where.kind.empty())
    out["device"] = {{"kind", where.kind},
                     {"refused", where.found.refusal},
                     {"on_device", figures(where.memory.device)},
                     {"in_host_memory", figures(where.memory.host)},
                     {"fit", name_of(where.verdict.fit)},
                     {"why", where.verdict.text}};
  if (measured) {
    out["measured"] = figures(measured->rank);
    out["measured"]["shared"] = measured->shared;
    out["measured"]["resident_of_all_ranks"] = measured->resident;
    if (!where.kind.empty()) {
      out["measured"]["host_optimizer"] = measured->host_optimizer;
      out["measured"]["device_total"] = measured->device_total;
    }
  }
  return out;
}

}  // namespace

int summary_main(int argc, char** argv) {
  std::vector<std::string> rest;
  auto launch_options = launch::extract_run_options(words_of(argc, argv), &rest);
  launch::refuse_several_nodes(launch_options);
  const SummaryFlags flags = parse_summary_flags(rest);
  if (flags.help) {
    std::fputs(kSummaryHelp, stdout);
    std::fputs(launch::run_flags_help().c_str(), stdout);
    return kExitDone;
  }
  check<UsageError>(!flags.files.empty(),
                    "summary: name a configuration, as in 'trireme summary examples/gpt.json'");
  check_json_file(flags.json);
  const Config config = Config::load(ConfigInputs::from(flags.files, flags.sets));
  check_layout(config, launch_options.nproc_per_node);
  const MemoryPlan plan = plan_memory(config, launch_options.nproc_per_node);
  Where where = where_of(config, plan);
  const bool on_cpu = where.kind.empty();
  const MemoryVerdict verdict = judge_memory(on_cpu ? plan.mean : where.memory.host,
                                             launch_options.nproc_per_node, host_memory());
  if (flags.measure) {
    const DeviceAnswer there =
        on_cpu ? where.found
               : find_device(config, {.ranks = launch_options.nproc_per_node}, ask_worker);
    check<UsageError>(there.refusal.empty(), "{}", there.refusal);
  }
  std::optional<Measured> measured;
  int code = kExitDone;
  if (flags.measure) measured = measure(config, plan.batches, launch_options, &code);
  if (code != kExitDone || (flags.measure && !measured)) return code;
  if (!on_cpu) {
    const int64_t capacity =
        measured && measured->device_total > 0 ? measured->device_total : where.found.memory;
    where.verdict = judge_device_memory(where.memory.device, where.kind, capacity);
  }
  if (!flags.json.empty()) write_json(flags.json, plan_json(plan, verdict, where, measured));
  if (flags.json == "-") return kExitDone;
  std::string text = model_table(plan.model) +
                     (on_cpu ? plan_text(plan, measured) : placed_text(plan, where, measured));
  if (!on_cpu)
    text += where.found.refusal.empty()
                ? "\nOn the device: " + where.verdict.text
                : "\nOn the device: `trireme train` refuses it: " + where.found.refusal;
  text += (on_cpu ? "\nOn this machine: " : "\nIn host memory: ") + verdict.text;
  if (!on_cpu && verdict.fit != MemoryVerdict::Fit::fits)
    text += ": free memory, or take fewer ranks";
  else if (verdict.fit != MemoryVerdict::Fit::fits)
    text += (verdict.fit == MemoryVerdict::Fit::tight ? ". " : ": `trireme train` refuses it. ") +
            memory_advice(plan);
  text += "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitDone;
}

}  // namespace trireme
