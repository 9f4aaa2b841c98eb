// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/initial_weights.h"

#include <fmt/ranges.h>

#include <string_view>

#include "trireme/base/check.h"
#include "trireme/checkpoint/load_weights.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/config/recorded.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/interop/weights/weight_source.h"

namespace trireme {
namespace {

// A run's config.json may say that its steps are in another folder.
struct InitPlace {
  std::string path, instead;  // instead: what else was looked at, or ""
};

InitPlace init_place(const std::string& given) {
  const std::string recorded = recorded_steps_folder(given);
  try {
    if (recorded.empty() || interop::is_weight_source(given)) return {given, ""};
    if (holds_checkpoint(recorded)) return {recorded, ""};
    return {given, holds_checkpoint(given) ? "" : recorded};
  } catch (const ResourceError&) {
    return {given, recorded};
  }
}

}  // namespace

std::string load_initial_weights(const Config& config, const StateWalk& walk, const Group& group,
                                 const TiedNames& tied, const std::vector<std::string>& elsewhere) {
  const auto checkpoint = config.section<CheckpointSection>();
  if (!checkpoint.init) {
    for (const char* key : {"checkpoint.init_map", "checkpoint.init_except"})
      check<UsageError>(config.is_default(key),
                        "{}: {} says how checkpoint.init is read, which is not given: give it, or "
                        "leave this out",
                        config.origin(key), key);
    return "";
  }
  const std::vector<std::string> none;
  WeightOptions options{checkpoint.init_map.value_or(none), checkpoint.init_except.value_or(none),
                        tied};
  options.except.insert(options.except.end(), elsewhere.begin(), elsewhere.end());
  const InitPlace place = init_place(*checkpoint.init);
  try {
    const CheckpointInfo from = load_weights(place.path, walk, group, options);
    return fmt::format("weights of {}{}{}", from.folder, from.notes.empty() ? "" : ": ",
                       fmt::join(from.notes, "; "));
  } catch (const UsageError& e) {
    const std::string_view text = e.what();
    if (!place.instead.empty())
      fail<UsageError>(
          "checkpoint.init: {}, and none is in {}, where the config.json of that run says that it "
          "saves",
          text, place.instead);
    fail<UsageError>(
        "checkpoint.init: {}{} checkpoint.init_map renames, checkpoint.init_except lets "
        "names be missing or left over",
        text, text.ends_with('?') ? "" : ".");
  }
}

}  // namespace trireme
