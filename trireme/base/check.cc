// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"

#include <cstring>

namespace trireme {

std::string errno_text(int code) {
  char buffer[128];
  return ::strerror_r(code, buffer, sizeof buffer);  // the GNU form: returns the text
}

}  // namespace trireme
