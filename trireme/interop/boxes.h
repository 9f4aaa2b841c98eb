// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/interop/array_folder.h"

namespace trireme::interop {

/// Corrupt unless the boxes are inside the shape, do not overlap, and cover it. Sorts them, and
/// drops those without elements.
void check_boxes(BoxedArray& array, const std::string& where);

/// folder/name, if that is a file in the folder or below it: no absolute path and no "..".
std::string path_inside(const std::string& folder, const std::string& name,
                        const std::string& where);

}  // namespace trireme::interop
