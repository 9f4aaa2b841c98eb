// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/exchange.h"
#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/exchange/import_weights.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/front/run_folder.h"
#include "trireme/interop/weights/array_reader.h"
#include "trireme/interop/weights/gpt2_names.h"

namespace trireme {
namespace {

void name_as_ours(const CheckpointFlags& flags, interop::WeightSource& source) {
  if (flags.names == "gpt2" || (flags.names != "plain" && interop::has_gpt2_names(source))) {
    interop::ArrayReader reader;
    interop::take_gpt2_names(source, interop::TiedHead::dropped,
                             [&](const auto& a, const auto& b) { return reader.same(a, b); });
  }
  for (const auto& [from, to] : map_rules(flags.map)) interop::rename_prefix(source, from, to);
}

// Its files hold the optimizer, too, under names that are no model's.
void refuse_our_own(const std::string& path) {
  std::error_code error;
  const bool step = std::filesystem::exists(path + "/" + CheckpointIndex::kFileName, error);
  const FolderFound found = step ? FolderFound() : look_into(path);
  check<UsageError>(!step && found.steps.empty() && !found.is_run,
                    "{} is {} of Trireme already, and nothing is to be imported: begin with its "
                    "weights as they are (checkpoint.init={}), or go on with it (trireme train "
                    "--resume {})",
                    path, step ? "a step" : "a run", path, path);
}

}  // namespace

int checkpoint_import(const CheckpointFlags& flags) {
  constexpr int64_t kStep = 0;
  if (!flags.force)
    check<UsageError>(list_steps(flags.other).empty(),
                      "{} has steps: import into a folder of its own, or --force to put {} beside "
                      "or in the place of them",
                      flags.other, step_folder_name(kStep));
  refuse_our_own(flags.path);
  interop::WeightSource source = interop::open_weights(flags.path);
  name_as_ours(flags, source);
  const ImportedStep step = import_weights(source, flags.other, kStep);
  std::string text =
      fmt::format("{}: {} tensors, {}, of {} ({})\n", shown(step.folder), source.arrays.size(),
                  bytes_text(step.bytes), shown(flags.path), source.kind);
  for (const std::string& note : source.notes) text += "  " + shown(note) + "\n";
  deliver(flags, text,
          {{"source", flags.path},
           {"kind", source.kind},
           {"step", step.folder},
           {"tensors", source.arrays.size()},
           {"bytes", step.bytes},
           {"notes", source.notes}});
  return kExitDone;
}

}  // namespace trireme
