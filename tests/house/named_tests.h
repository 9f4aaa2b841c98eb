// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

// For pages that say by which test a promise is kept.
namespace trireme::testing {

/// "suite.fact" of every test there is.
inline std::set<std::string> all_tests() {
  static const std::regex definition(R"(TEST(_F|_P)?\(\s*([A-Za-z0-9_]+),\s*([A-Za-z0-9_]+)\))");
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("/tests"))) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = read_file(entry.path().string());
    for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it)
      found.insert((*it)[2].str() + "." + (*it)[3].str());
  }
  return found;
}

/// The tests that a text names in backticks.
inline std::set<std::string> tests_named_in(const std::string& text) {
  static const std::regex name(R"(`([A-Za-z0-9_]+\.[A-Za-z0-9_]+)`)");
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

}  // namespace trireme::testing
