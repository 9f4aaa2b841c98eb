// SPDX-License-Identifier: Apache-2.0
// docs/security.md promises; the tests that it names keep the promises.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/house/named_tests.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::security_test {
namespace {

using trireme::testing::tests_named_in;

std::string page() { return read_file(trireme::testing::source_path("/docs/security.md")); }

TEST(house_security, each_test_that_the_page_names_exists) {
  const auto there = trireme::testing::all_tests();
  const auto named = tests_named_in(page());
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
    EXPECT_TRUE(!kept_out || !tests_named_in(line).empty()) << line;
  }
  EXPECT_GE(rows, 20);
}

}  // namespace
}  // namespace trireme::security_test
