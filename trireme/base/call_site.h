// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme {

/// Where a call is made in the caller's program; take it as a default argument, `CallSite at =
/// CallSite::here()`. (Stands in for std::source_location, which clang 14 lacks.)
struct CallSite {
  const char* file = "";
  int line = 0;
  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace trireme
