// SPDX-License-Identifier: Apache-2.0
// docs/configuration.md has the table of keys as `trireme config keys --markdown` prints it.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/config/key_table.h"
#include "trireme/config/report.h"

namespace keys_page_test {

using namespace trireme;

TEST(config_keys_page, the_page_has_the_table_as_it_is_printed) {
  const std::string page = read_file(trireme::testing::source_path("/docs/configuration.md"));
  const std::string from = "<!-- keys -->\n", to = "<!-- end of keys -->\n";
  const size_t begin = page.find(from), end = page.find(to);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(page.substr(begin + from.size(), end - begin - from.size()),
            keys_markdown(*KeyTable::built_in()))
      << "put what `trireme config keys --markdown` prints between the two marks";
}

TEST(config_keys_page, every_key_that_runs_has_a_line) {
  const std::string text = keys_text(*KeyTable::built_in());
  for (const KeyInfo& key : all_keys())
    EXPECT_EQ(text.find("  " + key.path + " ") != std::string::npos,
              key.status == KeyStatus::supported && key.alias_of.empty())
        << key.path;
}

TEST(config_keys_page, a_row_says_default_values_condition_and_other_names) {
  const std::string page = keys_markdown(*KeyTable::built_in());
  for (const char* row :
       {"| `steps_per_print`, also `training.log_every` | `10` | 1 to 1000000000 | optimizer steps "
        "between two progress lines |\n",
        "| `comm.across` | `\"gloo\"` | gloo, mpi | backend for collectives between hosts (when "
        "comm.backend is hybrid) |\n",
        "| `checkpoint.folder` |  | a string | folder for checkpoints; by default the run's folder "
        "|\n"})
    EXPECT_NE(page.find(row), std::string::npos) << row;
}

}  // namespace keys_page_test
