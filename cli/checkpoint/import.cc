// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/checkpoint/exchange.h"
#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/exchange/import_weights.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
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

}  // namespace

int checkpoint_import(const CheckpointFlags& flags) {
  constexpr int64_t kStep = 0;
  if (!flags.force)
    check<UsageError>(list_steps(flags.other).empty(),
                      "{} has steps: import into a folder of its own, or --force to put {} beside "
                      "or in the place of them",
                      flags.other, step_folder_name(kStep));
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
