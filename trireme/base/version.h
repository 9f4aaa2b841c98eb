// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"

namespace trireme {

/// "0.1.0": of the library that this program runs with, which need not be the one it was built
/// with.
TRIREME_API const char* version();

}  // namespace trireme
