// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/base/export.h"

// Which cgroups this process is in.
namespace trireme {

/// The folders of this process's cgroup for `controller` (v1) or of the unified tree (""), from its
/// own up to the root of the tree, under `root` + /sys/fs/cgroup. Stops when `visit` returns false.
TRIREME_API void walk_cgroups(const std::string& root, const std::string& controller,
                              const std::function<bool(const std::string& folder)>& visit);

}  // namespace trireme
