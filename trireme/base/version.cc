// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/version.h"

namespace trireme {

const char* version() { return TRIREME_VERSION; }  // of the project: CMakeLists.txt

}  // namespace trireme
