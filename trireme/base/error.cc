// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/error.h"

namespace trireme {

// Out of line, so that each type has one vtable and one type_info, exported from libtrireme_core.
Error::~Error() = default;
UsageError::~UsageError() = default;
Mismatch::~Mismatch() = default;
PeerLost::~PeerLost() = default;
Timeout::~Timeout() = default;
Aborted::~Aborted() = default;
ResourceError::~ResourceError() = default;
NumericError::~NumericError() = default;
Corrupt::~Corrupt() = default;

std::string brief(const std::exception& error) {
  std::string text = error.what();
  for (const char* stack : {"\nException raised from ", "\nframe #0"})
    if (const auto at = text.find(stack); at != text.npos) text.resize(at);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

int exit_code_for(const std::exception& error) {
  return dynamic_cast<const UsageError*>(&error) ? kExitUsage : kExitFailed;
}

}  // namespace trireme
