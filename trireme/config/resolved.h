// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

namespace trireme {

/// What Config::to_json() wrote, handed from process to process: values keep the origins they had
/// there, so that what is wrong with one names the user's own file, line or flag. UsageError.
TRIREME_API Config load_resolved(std::string_view text,
                                 std::shared_ptr<const KeyTable> table = nullptr);

}  // namespace trireme
