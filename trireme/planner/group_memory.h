// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/mesh/coordinates.h"

namespace trireme {

/// What a rank's groups keep for themselves on the local backend, where ranks are processes: each
/// group of more than one rank has control memory of its own (comm/local/control.h), and those of
/// one axis, which carry tensors, a window for small blocks too. Pure.
TRIREME_API int64_t local_group_bytes(const MeshShape& mesh);

}  // namespace trireme
