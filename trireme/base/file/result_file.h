// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"

// Files that a user names for a result, as in --json FILE. The user may name anything: a link is
// followed; what is there and no regular file (a pipe, /dev/null) is opened and written; a name of
// a descriptor (/dev/stdout, /dev/fd/7) is that descriptor; and a regular file, or one that is not
// there yet, appears complete (write_file_atomic). Links and pipes that another user has put into a
// folder where everybody may write are refused.
namespace trireme {

/// UsageError for a folder, ResourceError with the system's reason.
TRIREME_API void write_result_file(const std::string& path, std::string_view bytes);
/// Whether it could be written now, before work whose result would be lost: throws what
/// write_result_file() would. Nothing stays behind, and a pipe is not opened.
TRIREME_API void check_result_file(const std::string& path);
/// What a path stands for when links are followed, the last of which may lead to nothing yet.
TRIREME_API std::string follow_links(const std::string& path);

}  // namespace trireme
