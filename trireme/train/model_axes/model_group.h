// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/mesh/mesh.h"

namespace trireme {

/// Whether ranks hold parts of the model.
inline bool is_divided(const DeviceMesh& mesh) { return mesh.size("pp") * mesh.size("tp") > 1; }

/// The ranks that hold one copy of the model together, and read the same samples. Not for a model
/// that each rank holds whole: a group of one has memory of its own too.
inline Group model_group(const DeviceMesh& mesh) { return mesh.group({"pp", "tp"}); }

}  // namespace trireme
