// SPDX-License-Identifier: Apache-2.0
#include "tests/support/paths.h"

namespace trireme::testing {

std::string source_path(const std::string& under) { return TRIREME_SOURCE_DIR + under; }

std::string build_path(const std::string& under) { return TRIREME_BUILD_DIR + under; }

}  // namespace trireme::testing
