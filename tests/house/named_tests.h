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

/// "suite.fact" of every test there is, also where a file has a macro of its own that makes several
/// of one fact.
inline std::set<std::string> all_tests() {
  static const std::regex definition(R"(TEST(_F|_P)?\(\s*([A-Za-z0-9_]+),\s*([A-Za-z0-9_]+)\))");
  static const std::regex macro(R"(#define ([A-Z_]+)\(fact\))");
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("/tests"))) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = read_file(entry.path().string());
    for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it)
      found.insert((*it)[2].str() + "." + (*it)[3].str());
    std::smatch made;
    if (!std::regex_search(text, made, macro)) continue;
    const std::regex fact("\\n" + made[1].str() + R"(\(\s*([A-Za-z0-9_]+)\))");
    for (std::sregex_iterator it(text.begin(), text.end(), fact), end; it != end; ++it)
      for (std::sregex_iterator of(text.begin(), text.end(), definition); of != end; ++of)
        if ((*of)[3] == "fact") found.insert((*of)[2].str() + "." + (*it)[1].str());
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
