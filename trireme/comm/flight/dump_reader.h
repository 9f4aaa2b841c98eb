// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/flight/history.h"

namespace trireme::flight {

/// Reads one dump from untrusted bytes. Throws Corrupt if they are truncated, changed or not a
/// dump, and UsageError if a newer Trireme wrote them. `name` is used in errors.
TRIREME_API History read_dump(std::string_view bytes, const std::string& name);

/// Reads the dumps (*.flight) of a folder. Throws UsageError if there are none. A rank has one file
/// for each life of a group; if a job was started again in the same folder, the newest lives are
/// used.
TRIREME_API std::vector<History> read_dumps(const std::string& folder);

}  // namespace trireme::flight
