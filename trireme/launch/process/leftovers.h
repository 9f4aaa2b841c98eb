// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"

// What a launcher leaves when it and its keeper are killed together (a cgroup, a container, the
// machine): its private folder with the job's secret, and what its workers had started.
namespace trireme::launch {

/// Writes into a private folder whose it is.
TRIREME_API void mark_owner(const std::string& folder);

/// Private folders of this user below `base` whose owners are dead are removed, and processes of
/// those jobs ended. Folders without an owner's mark, or of processes that cannot be judged from
/// here, stay. Never throws: a start does not depend on it.
TRIREME_API void sweep_leftovers(const std::string& base) noexcept;

}  // namespace trireme::launch
