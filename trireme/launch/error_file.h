// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

// How a failing worker tells its launcher why, in torchelastic's format, so that torchrun shows our
// errors and we show those of Python workers. $TORCHELASTIC_ERROR_FILE names the file.
namespace trireme::launch {

/// Publishes {"message": {"message": "TYPE: MESSAGE", "extraInfo": {"py_callstack", "timestamp"}}}
/// at `path` in one step, with the time of the call. The first report stands: an existing file is
/// left alone. ResourceError.
TRIREME_API void write_error_file(const std::string& path, std::string_view type,
                                  std::string_view message, std::string_view callstack = {});

struct ErrorReport {
  std::string type;     // "PeerLost", "ValueError"; "" where the message does not begin with one
  std::string message;  // with the type
  std::string callstack;
  std::optional<int64_t> time_ns;  // since 1970
  bool whole_seconds = false;      // time_ns was written with a resolution of seconds
};

/// nullopt: no file, or not one of these (half written, too large, other JSON).
TRIREME_API std::optional<ErrorReport> read_error_file(const std::string& path);

}  // namespace trireme::launch
