// SPDX-License-Identifier: Apache-2.0
// docs/faults.md is made by scripts/faults; a fault on it is one that a test makes.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>

#include "tests/house/named_tests.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::faults_test {
namespace {

std::string page() { return read_file(trireme::testing::source_path("/docs/faults.md")); }

/// In its list, tests stand in quotation marks.
std::set<std::string> tests_of_the_script() {
  static const std::regex kName(R"re("([A-Za-z0-9_]+\.[A-Za-z0-9_]+)")re");
  const std::string text = read_file(trireme::testing::source_path("/scripts/faults"));
  const std::string list = text.substr(0, text.find("HELP ="));
  std::set<std::string> found;
  for (std::sregex_iterator it(list.begin(), list.end(), kName), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

TEST(house_faults, each_fault_of_the_page_names_a_test_that_exists) {
  const auto there = testing::all_tests();
  std::istringstream lines(page());
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| ", 0) != 0 || line.rfind("| fault |", 0) == 0) continue;
    ++rows;
    const auto named = testing::tests_named_in(line);
    EXPECT_FALSE(named.empty()) << line;
    for (const auto& name : named) EXPECT_TRUE(there.count(name)) << name;
  }
  EXPECT_GE(rows, 30);
}

TEST(house_faults, the_page_is_the_one_that_the_script_makes) {
  EXPECT_EQ(testing::tests_named_in(page()), tests_of_the_script()) << "run scripts/faults";
}

TEST(house_faults, no_fault_of_the_page_failed) {
  static const std::regex kPassed(R"(\| ([0-9]+) of ([0-9]+) \|)");
  const std::string text = page();
  for (std::sregex_iterator it(text.begin(), text.end(), kPassed), end; it != end; ++it)
    EXPECT_EQ((*it)[1], (*it)[2]) << (*it)[0];
}

}  // namespace
}  // namespace trireme::faults_test
