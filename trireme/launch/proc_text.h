// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

// Files of /proc and /sys that may be missing.
namespace trireme::launch {

std::optional<std::string> read_if_there(const std::string& path);
/// The folders of this process's cgroup for `controller` (v1) or of the unified tree (""), from its
/// own up to the root of the tree, under `root` + /sys/fs/cgroup. Stops when `visit` returns false.
void walk_cgroups(const std::string& root, const std::string& controller,
                  const std::function<bool(const std::string& folder)>& visit);

}  // namespace trireme::launch
