// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// A run folder holds step-00000100/, step-00000200/, … and `latest`, a file with the name of the
// step that was published last. One rename makes a step folder appear, complete. The names of
// temporary folders begin with ".tmp-"; a damaged step is renamed to damaged-step-00000100.
namespace trireme {

/// "step-00000100"
TRIREME_API std::string step_folder_name(int64_t step);
/// The step of such a name, which is not a path; -1 for any other text.
TRIREME_API int64_t step_of_name(std::string_view name);
/// The step of the folder at a path, whose last component is such a name; -1 for any other.
TRIREME_API int64_t step_of_folder(const std::string& folder);
/// The steps published in a run folder, in ascending order; empty if the folder does not exist.
/// ResourceError if it cannot be read.
TRIREME_API std::vector<int64_t> list_steps(const std::string& run_dir);
/// Whether find_checkpoint() has something to find in a run folder, or to complain about: a step,
/// an old copy that had stepped aside, or `latest`. False if the folder does not exist;
/// ResourceError if it cannot be read.
TRIREME_API bool holds_checkpoint(const std::string& run_dir);
/// Returns `path` itself if it is a step folder; for a run folder, the step named by `latest` or,
/// without `latest`, the newest. If a saver was killed while replacing that step, returns the old
/// copy, which had been renamed. UsageError if there is no checkpoint; Corrupt if
/// `latest` names a step that does not exist, or anything but a step of this folder;
/// ResourceError if the folder cannot be read.
TRIREME_API std::string find_checkpoint(const std::string& path);
/// The name in a run folder's `latest`; "" where there is none, or no text of such a length.
/// Nothing says that it is there. ResourceError.
TRIREME_API std::string name_in_latest(const std::string& run_dir);
/// A number that was saved as a value in a step folder; nullopt if it has none of this name, or no
/// index that can be read.
TRIREME_API std::optional<double> number_in_step(const std::string& folder,
                                                 const std::string& name);
/// The same for an integer.
TRIREME_API std::optional<int64_t> integer_in_step(const std::string& folder,
                                                   const std::string& name);
/// The same for a text.
TRIREME_API std::optional<std::string> text_in_step(const std::string& folder,
                                                    const std::string& name);
/// The value of a step that was evaluated before it was saved.
inline constexpr const char* kHeldOutLoss = "train.held_out_loss";

/// Marks the temporary name of a complete step that was renamed to make room for a new one.
inline constexpr const char* kPutAside = "aside";
/// The name of the step of which the folder `name` is such an old copy, if that step does not exist
/// now; else "".
std::string step_put_aside(const std::string& run_dir, const std::string& name);

}  // namespace trireme
