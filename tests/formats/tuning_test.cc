// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan/tuning.h"

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace tuning_test {

using namespace trireme;

// tuning-v1.json is a table as version 1 of the format was when it landed.
namespace {

const std::string kFixture = trireme::testing::source_path("/tests/formats/tuning-v1.json");

TuningTable the_same_table() {
  TuningTable t({"Intel(R) Xeon(R) Processor @ 2.60GHz", 2, 2, "local"});
  t.add({"all_reduce", 2, 4, Algorithm::tree, 0.0000005});
  t.add({"all_reduce", 2, 1048576, Algorithm::direct, 0.00006103515625});
  t.add({"all_reduce", 2, 1048576, Algorithm::ring, 0.000125});
  t.add({"all_reduce", 4, 1048576, Algorithm::halving_doubling, 0.0001});
  return t;
}

}  // namespace

TEST(formats_tuning, version_1_is_written_byte_for_byte) {
  ASSERT_EQ(TuningTable::kVersion, 1) << "a new version: keep this fixture, add one of the new";
  EXPECT_EQ(the_same_table().text(), read_file(kFixture));
}

TEST(formats_tuning, a_file_of_version_1_says_what_it_said) {
  const auto table = TuningTable::load(the_same_table().shape(), kFixture);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->text(), the_same_table().text());
  EXPECT_EQ(table->choose("all_reduce", 2, 1 << 20), Algorithm::direct);
  EXPECT_EQ(table->choose("all_reduce", 4, 1 << 20), Algorithm::halving_doubling);
}

TEST(formats_tuning, a_newer_version_is_refused_naming_both) {
  std::string text = read_file(kFixture);
  const std::string mark = "\"version\": 1";
  text.replace(text.find(mark), mark.size(), "\"version\": 3");
  try {
    TuningTable::parse(text, "cache.json");
    FAIL() << "accepted";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("version 3"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("up to 1"), std::string::npos);
  }
}

}  // namespace tuning_test
