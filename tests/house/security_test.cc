// SPDX-License-Identifier: Apache-2.0
// docs/security.md promises; the tests that it names keep the promises.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::security_test {
namespace {

namespace fs = std::filesystem;

const std::regex kTestName(R"(`([a-z0-9_]+\.[a-z0-9_]+)`)");

std::string page() { return read_file(trireme::testing::source_path("/docs/security.md")); }

/// "suite.fact" of every test there is.
std::set<std::string> all_tests() {
  static const std::regex definition(R"(TEST(_F|_P)?\(\s*([A-Za-z0-9_]+),\s*([A-Za-z0-9_]+)\))");
  std::set<std::string> found;
  for (const auto& entry :
       fs::recursive_directory_iterator(trireme::testing::source_path("/tests"))) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = read_file(entry.path().string());
    for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it)
      found.insert((*it)[2].str() + "." + (*it)[3].str());
  }
  return found;
}

std::set<std::string> names_in(const std::string& text) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), kTestName), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

TEST(house_security, each_test_that_the_page_names_exists) {
  const auto there = all_tests();
  const auto named = names_in(page());
  EXPECT_GE(named.size(), 30u);
  for (const auto& name : named) EXPECT_TRUE(there.count(name)) << name;
}

TEST(house_security, whoever_is_kept_out_is_kept_out_by_a_test) {
  std::istringstream lines(page());
  bool in_table = false;
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| somebody", 0) == 0) {
      in_table = line.find("| kept out? |") != std::string::npos;
      EXPECT_TRUE(in_table) << line;
      continue;
    }
    if (line.rfind("|", 0) != 0) in_table = false;
    if (!in_table || line.rfind("|---", 0) == 0) continue;
    ++rows;
    const bool kept_out = line.find("| **no** |") == std::string::npos;
    EXPECT_TRUE(!kept_out || !names_in(line).empty()) << line;
  }
  EXPECT_GE(rows, 20);
}

}  // namespace
}  // namespace trireme::security_test
