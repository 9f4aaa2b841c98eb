// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/base/export.h"

// Names for steps of a run folder: symbolic links beside them, each to one step.
namespace trireme {

inline constexpr const char* kLastLink = "last";
inline constexpr const char* kBestLink = "best";
inline constexpr const char* kInterruptLink = "interrupt";
/// "epoch_3": the step that ended the third epoch.
TRIREME_API std::string epoch_link(int64_t epoch);
/// Whether its step stays for the name's sake: those of epochs and of an interruption.
TRIREME_API bool link_keeps_step(const std::string& name);

/// Makes a link, or moves it, by one rename. ResourceError; also where something else than a link
/// has the name.
TRIREME_API void link_step(const std::string& run_dir, const std::string& name, int64_t step);
/// The links to steps, by name, whether the step is there or not; empty if there is no folder.
/// ResourceError.
TRIREME_API std::map<std::string, int64_t> step_links(const std::string& run_dir);

}  // namespace trireme
