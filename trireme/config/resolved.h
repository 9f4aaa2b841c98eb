// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

namespace trireme {

/// Loads the output of Config::to_json(), as passed between processes. Values keep their recorded
/// origins, so that errors name the user's own file, line or flag. Throws UsageError.
TRIREME_API Config load_resolved(std::string_view text,
                                 std::shared_ptr<const KeyTable> table = nullptr);

}  // namespace trireme
