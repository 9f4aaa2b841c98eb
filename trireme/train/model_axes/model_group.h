// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/mesh/mesh.h"

namespace trireme {

/// The ranks that hold one copy of the model together, and read the same samples. A group of one
/// where every rank holds the whole model.
inline Group model_group(const DeviceMesh& mesh) { return mesh.group({"pp", "tp"}); }

}  // namespace trireme
