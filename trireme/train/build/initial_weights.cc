// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/initial_weights.h"

#include <fmt/ranges.h>

#include <string_view>

#include "trireme/base/check.h"
#include "trireme/checkpoint/load_weights.h"
#include "trireme/config/sections/checkpoint.h"

namespace trireme {

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
  try {
    const CheckpointInfo from = load_weights(*checkpoint.init, walk, group, options);
    return fmt::format("weights of {}{}{}", from.folder, from.notes.empty() ? "" : ": ",
                       fmt::join(from.notes, "; "));
  } catch (const UsageError& e) {
    const std::string_view text = e.what();
    fail<UsageError>(
        "checkpoint.init: {}{} checkpoint.init_map renames, checkpoint.init_except lets "
        "names be missing or left over",
        text, text.ends_with('?') ? "" : ".");
  }
}

}  // namespace trireme
