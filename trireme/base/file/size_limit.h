// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// ResourceError where a file would have more bytes than this process may write into one
/// (`ulimit -f`). Called before such a write: the kernel's answer to it is SIGXFSZ, which ends the
/// process, and what becomes of a signal is for the program to say that uses this library.
TRIREME_API void check_file_size(const std::string& path, uint64_t bytes);

/// Whether so many more bytes may be written at the end of this file. True of what has no size: a
/// pipe, a terminal.
TRIREME_API bool may_grow(int fd, uint64_t bytes) noexcept;

}  // namespace trireme
