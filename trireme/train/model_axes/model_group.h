// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/mesh/mesh.h"

namespace trireme {

/// Whether ranks hold parts of the model.
inline bool is_divided(const DeviceMesh& mesh) { return mesh.size("pp") * mesh.size("tp") > 1; }

/// Of a divided model, whether this rank is the first of those that hold the same stage
/// (LayoutVisitor).
inline std::optional<bool> first_replica(const DeviceMesh& mesh) {
  if (!is_divided(mesh)) return std::nullopt;
  for (const char* axis : {"dp_replicate", "dp_shard", "cp", "tp"})
    if (mesh.coordinate(axis) > 0) return false;
  return true;
}

/// The ranks that hold one copy of the model together, and read the same samples. Not for a model
/// that each rank holds whole: a group of one has memory of its own too.
inline Group model_group(const DeviceMesh& mesh) { return mesh.group({"pp", "tp"}); }

}  // namespace trireme
