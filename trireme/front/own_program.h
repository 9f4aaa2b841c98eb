// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// The file of the program that runs, so that what it starts is the same program whatever the
/// current folder and PATH. ResourceError when it was deleted or replaced meanwhile.
TRIREME_API std::string own_program();

}  // namespace trireme
