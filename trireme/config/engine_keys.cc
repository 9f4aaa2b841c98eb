// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/engine_keys.h"

#include "trireme/base/check.h"
#include "trireme/config/key_table.h"

namespace trireme {
namespace {

constexpr const char* kSteps =
    "leaves the loop to you, which counts epochs and evaluates. training.steps gives schedules the "
    "number of steps";
constexpr const char* kSaves =
    "saves only when you call save_checkpoint(): call it at the interval you want";
constexpr const char* kBlocks =
    "does not know the blocks of your module: call recompute() in its forward "
    "(tensor/recompute/recompute.h)";
constexpr const char* kGenerate = "only trains: `trireme generate` reads it";
constexpr const char* kBatches =
    "steps on the batches of your loop and cannot change their sizes: use `trireme train`";
constexpr const char* kReproducible =
    "does not have the losses as sums or the data as leaves: use `trireme train`";
constexpr const char* kStages =
    "runs the whole of the module that you give it: write a ChainProgram (docs/your_own_model.md), "
    "or take the stages of docs/model_parallel.md in a loop of your own";
constexpr const char* kContext =
    "cannot know which positions of a batch your loss is of: use `trireme train`, or the layers of "
    "docs/long_context.md in a loop of your own";
constexpr const char* kElastic =
    "does not make the groups of your loop, and cannot make another: use `trireme train`";
constexpr const char* kGroup =
    "gets an existing group: pass it to init_process_group (InitOptions)";

}  // namespace

const std::vector<NotOfEngine>& keys_not_of_engine() {
  static const std::vector<NotOfEngine> rows = {
      {"model.*", "trains the module that you give it: remove the key", nullptr},
      {"data.*", "trains on the batches that your loop provides: set up your loader instead",
       nullptr},
      {"training.epochs", kSteps, nullptr},
      {"training.eval_every", kSteps, nullptr},
      {"training.eval_epochs", kSteps, nullptr},
      {"training.eval_batches", kSteps, nullptr},
      {"training.drop_last",
       "reads no data: set drop_last of your torch::data::DataLoaderOptions and of "
       "DistributedSamplerOptions",
       nullptr},
      {"training.seed",
       "draws no random numbers: call torch::manual_seed, and set the seed of "
       "DistributedSamplerOptions",
       nullptr},
      {"training.reproducible", kReproducible, nullptr},
      {"training.leaves", kReproducible, nullptr},
      {"training.recompute_every", kBlocks, nullptr},
      {"training.activation_memory_mb", kBlocks, nullptr},
      {"balance.*", kBatches, nullptr},
      {"data_efficiency.data_sampling.dynamic_batching.*", kBatches, nullptr},
      {"checkpoint.every", kSaves, nullptr},
      {"checkpoint.every_minutes", kSaves, nullptr},
      {"checkpoint.auto", kSaves, nullptr},
      {"checkpoint.budget", kSaves, nullptr},
      {"checkpoint.keep_best", kSteps, nullptr},
      {"checkpoint.names", kSteps, nullptr},
      {"checkpoint.keep_every",
       "saves only when you call save_checkpoint(): give the steps that are to stay a folder of "
       "their own",
       nullptr},
      {"checkpoint.snapshot_every",
       "loads what your program loads, from the disk: a launcher writes what ranks had in memory "
       "(checkpoint.async) before it starts them again",
       "0"},
      {"checkpoint.neighbour",
       "loads what your program loads, from the disk: launchers of several hosts hold no copies "
       "for each other then",
       "false"},
      {"checkpoint.on_error",
       "throws the error of a save_checkpoint() that fails: catch ResourceError to continue",
       "\"stop\""},
      {"checkpoint.at_end", "does not know which step is the last: call save_checkpoint() after it",
       "false"},
      {"monitor.progress", "draws no progress bar: steps_per_print logs a line", "false"},
      {"generate.*", kGenerate, nullptr},
      {"elastic.mode", kElastic, "\"restart\""},
      {"elastic.batch", kElastic, nullptr},
      {"parallelism.pp", kStages, "1"},
      {"parallelism.schedule", kStages, nullptr},
      {"parallelism.schedule_file", kStages, nullptr},
      {"parallelism.virtual_stages", kStages, "0"},
      {"parallelism.whole_stages", kStages, "0"},
      {"parallelism.stages", kStages, nullptr},
      {"parallelism.partition_method", kStages, "\"uniform\""},
      {"parallelism.cp", kContext, "1"},
      {"parallelism.cp_method", kContext, "\"ring\""},
      {"parallelism.cp_balance", kContext, "\"head_tail\""},
      {"comm.across", kGroup, nullptr},
      {"comm.check", kGroup, nullptr},
  };
  return rows;
}

const NotOfEngine* not_of_engine(std::string_view path) {
  for (const NotOfEngine& row : keys_not_of_engine()) {
    std::string_view keys = row.keys;
    const bool below = keys.ends_with(".*");
    if (below) keys.remove_suffix(1);  // the dot stays
    if (below ? path.starts_with(keys) : path == keys) return &row;
  }
  return nullptr;
}

std::vector<std::string> engine_refusals(const Config& config) {
  static const Config defaults = Config::from_text("defaults", "{}");
  std::vector<std::string> refusals;
  for (const KeyInfo& key : config.table().keys()) {
    if (key.status != KeyStatus::supported || !key.alias_of.empty()) continue;
    const NotOfEngine* row = not_of_engine(key.path);
    if (!row || config.is_default(key.path) || !config.applies(key.path)) continue;
    const auto value = config.value_text(key.path);
    const auto fine =
        row->fine ? std::optional<std::string>(row->fine) : defaults.value_text(key.path);
    if (value != fine)
      refusals.push_back(fmt::format("{}: {} is {}, and initialize() {}", config.origin(key.path),
                                     key.path, value.value_or("null"), row->why));
  }
  return refusals;
}

void check_engine_keys(const Config& config) {
  const auto refusals = engine_refusals(config);
  check<UsageError>(
      refusals.empty(), "{}{}", refusals.empty() ? "" : refusals[0],
      refusals.size() > 1 ? fmt::format(" (and {} more keys)", refusals.size() - 1) : "");
}

}  // namespace trireme
