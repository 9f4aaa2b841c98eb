// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Where the sources and the build are. Their names are in one object, so that every other object is
// the same in any folder and a compiler's cache serves all checkouts.
namespace trireme::testing {

std::string source_path(const std::string& under = "");  // "/tests/formats" or nothing
std::string build_path(const std::string& under = "");

}  // namespace trireme::testing
