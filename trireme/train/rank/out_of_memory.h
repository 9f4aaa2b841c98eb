// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// What an error says, for people: brief(), and of memory that could not be had one sentence with
/// the rank, what it asked for, the limit it is under, and what to do. `trireme
/// summary` can say what is needed of a `built_in_model` alone.
TRIREME_API std::string failure_text(const std::exception& error, bool built_in_model = true);

}  // namespace trireme
