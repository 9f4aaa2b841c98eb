// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// Returns an error's text for users: brief(), and if memory ran out, one sentence with the rank,
/// the size requested, the limit in force and what to do. It refers to `trireme summary` only for a
/// `built_in_model`.
TRIREME_API std::string failure_text(const std::exception& error, bool built_in_model = true);

}  // namespace trireme
