// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/interop/tree.h"

namespace trireme::interop {

/// What readers of a tree rely on, so that they may recurse: from the root down, values are nested
/// at most 100 deep, none is inside itself, and no dict has a key twice. Corrupt otherwise.
void check_shape(const Tree& tree, const std::string& where);

}  // namespace trireme::interop
