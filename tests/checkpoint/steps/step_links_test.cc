// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/step_links.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "tests/checkpoint/steps/written_step.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/retention.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"

namespace trireme::test::step_links_test {
namespace {

namespace fs = std::filesystem;
using Links = std::map<std::string, int64_t>;

TEST(checkpoint_steps_step_links, a_link_moves_and_what_it_names_is_found_through_it) {
  PrivateFolder run;
  for (const int64_t step : {3, 6}) {
    write_test_step(run.path(), step, {{"model.w", "F32", {2}, counted(2)}});
    link_step(run.path(), kLastLink, step);
    EXPECT_EQ(fs::canonical(find_checkpoint(run / kLastLink)),
              fs::canonical(run / step_folder_name(step)));
  }
  link_step(run.path(), epoch_link(1), 3);
  EXPECT_EQ(step_links(run.path()), (Links{{"last", 6}, {"epoch_1", 3}}));
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{3, 6})) << "links are no steps";
  EXPECT_EQ(find_checkpoint(run.path()), run / step_folder_name(6));
  for (const auto& entry : fs::directory_iterator(run.path()))
    EXPECT_NE(entry.path().filename().string().substr(0, 4), ".tmp") << entry.path();
}

// A saver that died between the making of a link and its move to its name.
TEST(checkpoint_steps_step_links, what_the_dead_left_on_the_way_to_a_name_is_cleared_away) {
  PrivateFolder run;
  fs::create_symlink("step-00000003", run / ".tmp-link-last-999999999");
  const std::string own = run / fmt::format(".tmp-link-last-{}", ::getpid());
  fs::create_symlink("step-00000003", own);
  { StepDraft draft(run.path(), 3); }
  EXPECT_FALSE(fs::is_symlink(run / ".tmp-link-last-999999999"));
  EXPECT_TRUE(fs::is_symlink(own));
}

TEST(checkpoint_steps_step_links, other_links_and_files_are_left_alone) {
  PrivateFolder run;
  fs::create_symlink("/tmp", run / "elsewhere");
  fs::create_symlink("../other/step-00000003", run / "another_run");
  write_text(run / "notes", "step-00000003");
  EXPECT_EQ(step_links(run.path()), Links{});
  EXPECT_EQ(step_links(run / "missing"), Links{});
  fs::create_directory(run / "best");
  EXPECT_THROW(link_step(run.path(), kBestLink, 3), ResourceError);
  EXPECT_TRUE(fs::is_directory(run / "best"));
  EXPECT_THROW(link_step(run / "missing", kBestLink, 3), ResourceError);
}

TEST(checkpoint_steps_step_links, steps_of_epochs_and_of_an_interruption_stay) {
  EXPECT_TRUE(link_keeps_step("epoch_12") && link_keeps_step("interrupt"));
  EXPECT_FALSE(link_keeps_step("last") || link_keeps_step("best") || link_keeps_step("mine"));
  const std::vector<SavedStep> steps = {{1, 2.0}, {2, 1.0, true}, {3, 1.0}, {4, 5.0}, {5, {}}};
  EXPECT_EQ(steps_to_delete(steps, 5, {.keep = 1}), (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(best_step(steps, 5), 3) << "the newest of equal ones";
  EXPECT_EQ(best_step(steps, 1), 1) << "a later step is of another run";
  EXPECT_EQ(best_step({{1, {}}, {2, std::nan("")}}, 5), std::nullopt);
}

// Defect 10 of the recipe: its metrics were compared by evaluating text.
TEST(checkpoint_steps_step_links, the_best_is_found_by_number_and_not_by_text) {
  EXPECT_EQ(best_step({{1, 10.0}, {2, 9.0}, {3, 1e-3}, {4, -2.0}, {5, -10.0}}, 9), 5);
  EXPECT_EQ(best_step({{1, 9.0}, {2, 10.0}}, 9), 1);
}

}  // namespace
}  // namespace trireme::test::step_links_test
