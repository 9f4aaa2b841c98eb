// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// Folders, by way of file_calls.h. What cannot be asked is a ResourceError with the path and the
// system's reason, never an answer that there is nothing.
namespace trireme {

enum class PathKind { nothing, file, folder, other };
/// What stands there, a link followed, and the size of a file.
TRIREME_API PathKind path_kind(const std::string& path, uint64_t* size = nullptr);
/// Names in a folder, in no order, without . and ..; none where there is no such folder.
TRIREME_API std::vector<std::string> list_folder(const std::string& path);
/// Makes it and its parents as needed, each entered durably in its parent if that may be read.
TRIREME_API void make_folders(const std::string& path);
/// Removes a file, or a folder with all it holds; nothing there is fine. Links are not followed.
TRIREME_API void remove_tree(const std::string& path);
/// The folder in which a path's last part is: "." for a bare name.
TRIREME_API std::string parent_folder(const std::string& path);

}  // namespace trireme
