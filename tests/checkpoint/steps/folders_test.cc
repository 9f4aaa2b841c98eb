// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/folders.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/checkpoint/steps/written_step.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/newest_good.h"

namespace trireme::test::folders_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLast = std::numeric_limits<int64_t>::max();

std::string write_step(const std::string& run, int64_t step) {
  return write_test_step(run, step, {{"model.w", "F32", {2}, counted(2)}});
}

TEST(checkpoint_steps_folders, any_step_has_a_name_that_says_it) {
  for (int64_t step : {int64_t{0}, int64_t{1}, int64_t{99'999'999}, int64_t{100'000'000},
                       int64_t{1} << 62, kLast - 1, kLast}) {
    EXPECT_EQ(step_of_name(step_folder_name(step)), step);
    EXPECT_EQ(step_of_folder("run/" + step_folder_name(step) + "/"), step);
  }
}

TEST(checkpoint_steps_folders, any_other_name_says_none) {
  for (const char* name :
       {"", "step-", "step-1", "step-0000000", "step--0000001", "step-+0000001", "step-000000001",
        "step-9223372036854775808", "step-99999999999999999999", "step-0000000x", "step-00000001 ",
        "step-00000001/", "../step-00000001", "a/step-00000001", "/step-00000001"})
    EXPECT_EQ(step_of_name(name), -1) << name;
}

TEST(checkpoint_steps_folders, the_last_step_that_there_can_be_is_found_again) {
  PrivateFolder run;
  const std::string step = write_step(run.path(), kLast);
  EXPECT_EQ(list_steps(run.path()), std::vector<int64_t>{kLast});
  EXPECT_EQ(find_checkpoint(run.path()), step);
  EXPECT_EQ(newest_good_step(run.path()), step);
  fs::remove(run / "latest");
  EXPECT_EQ(find_checkpoint(run.path()), step);
}

TEST(checkpoint_steps_folders, latest_names_no_step_of_another_run) {
  PrivateFolder runs;
  const std::string own = write_step(runs / "own", 6);
  write_step(runs / "other", 6);
  for (const std::string& said :
       {std::string("../other/step-00000006"), runs / "other/step-00000006",
        std::string("./step-00000006"), std::string("step-00000006/"),
        std::string("step-00000006/../../other/step-00000006")}) {
    write_text(runs / "own/latest", said + "\n");
    try {
      const std::string found = find_checkpoint(runs / "own");
      ADD_FAILURE() << said << " is taken for " << found;
    } catch (const Corrupt& e) {
      EXPECT_EQ(std::string(e.what()), runs / "own/latest" +
                                           " does not hold the name of a step folder of this run: "
                                           "it says '" +
                                           said + "'");
    }
    EXPECT_EQ(newest_good_step(runs / "own"), own);
    EXPECT_EQ(read_file(runs / "own/latest"), "step-00000006\n");
  }
}

}  // namespace
}  // namespace trireme::test::folders_test
