// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/base/export.h"

namespace trireme::job {

/// One document of YAML 1.1 and 1.2 alike, in blocks, ending with a newline. A text stands bare
/// only where no reader takes it for anything else; texts of several lines are literal blocks where
/// they can be. UsageError: a text that is not UTF-8.
TRIREME_API std::string yaml_document(const nlohmann::ordered_json& value);

}  // namespace trireme::job
