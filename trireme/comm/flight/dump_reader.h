// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/flight/history.h"

namespace trireme::flight {

/// One dump. The bytes may come from anybody: Corrupt where they are cut, changed or not a dump,
/// UsageError where a newer Trireme wrote them. `name` is for the texts.
TRIREME_API History read_dump(std::string_view bytes, const std::string& name);

/// The dumps (*.flight) of a folder. UsageError where there are none. Of one rank in one life of a
/// group there is one file; where a job was started again in the same folder, the groups' newest
/// lives are taken.
TRIREME_API std::vector<History> read_dumps(const std::string& folder);

}  // namespace trireme::flight
