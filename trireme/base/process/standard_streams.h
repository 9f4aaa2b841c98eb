// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"

namespace trireme {

/// Descriptors 0 to 2 that whoever started this program has closed (`>&-`) become /dev/null: else
/// the next file that is opened, a checkpoint say, gets that number and all that is printed. For
/// main(), before anything is opened; a library does not call it.
TRIREME_API void open_missing_standard_streams();

}  // namespace trireme
