// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// What a run's config.json calls checkpoint.folder; "" where it names none, or cannot be read.
TRIREME_API std::string recorded_steps_folder(const std::string& run_folder);

}  // namespace trireme
