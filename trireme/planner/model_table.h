// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/planner/model_shape.h"

namespace trireme {

/// The table that PyTorch Lightning prints before a training, byte for byte but for blanks at ends
/// of lines: the network's own children, their types and parameters, totals, and megabytes at
/// `bytes` a parameter.
TRIREME_API std::string model_table(const ModelShape& model, int bytes = 4);

/// Lightning's: "320", "18.5 K", "1.2 M", "110 M".
TRIREME_API std::string count_text(int64_t count);

}  // namespace trireme
