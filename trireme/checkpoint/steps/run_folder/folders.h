// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// A run folder: step-00000100/, step-00000200/, …, and `latest`, a file with the name of the newest
// published one. A step folder appears whole, by one rename; a temporary begins with ".tmp-", and a
// step that was found damaged is called damaged-step-00000100.
namespace trireme {

/// "step-00000100"
TRIREME_API std::string step_folder_name(int64_t step);
/// The step of such a name (a path's last part); -1 for any other.
TRIREME_API int64_t step_of_folder(const std::string& folder);
/// Steps published in a run folder, rising. Empty when the folder is not there; ResourceError when
/// it cannot be read.
TRIREME_API std::vector<int64_t> list_steps(const std::string& run_dir);
/// `path` itself when it is a step folder; of a run folder the one that `latest` names, else (no
/// `latest`) the newest. Where a saver was killed while the step that `latest` names had stepped
/// aside for a new one, what stepped aside. UsageError where there is none; Corrupt when `latest`
/// names what is not there; ResourceError when it cannot be read.
TRIREME_API std::string find_checkpoint(const std::string& path);
/// A number that was saved as a value in a step folder; nothing where there is none of this name,
/// or no index that can be read.
TRIREME_API std::optional<double> number_in_step(const std::string& folder,
                                                 const std::string& name);
/// The same of an integer.
TRIREME_API std::optional<int64_t> integer_in_step(const std::string& folder,
                                                   const std::string& name);

/// Marks the temporary name of a step that is whole and has stepped aside.
inline constexpr const char* kPutAside = "aside";
/// The name of the step which stepped aside as `name`, if there is no such step now; else "".
std::string step_put_aside(const std::string& run_dir, const std::string& name);

}  // namespace trireme
