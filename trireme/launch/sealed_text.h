// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

// A text handed to child processes by descriptor. Unlike a file it has no name under which another
// job could rewrite it, and it cannot be changed any more, by its maker neither.
namespace trireme::launch {

/// `name` shows in /proc. Inherited by programs that this process starts. ResourceError.
TRIREME_API UniqueFd seal_text(const std::string& name, std::string_view text);
/// The whole text; closes the descriptor. UsageError: not a descriptor that seal_text made.
TRIREME_API std::string take_sealed_text(int fd);

}  // namespace trireme::launch
