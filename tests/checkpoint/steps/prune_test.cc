// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/prune.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/steps/written_step.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"

namespace trireme::test::prune_test {
namespace {

using Steps = std::vector<int64_t>;

void write_steps(const std::string& run, const Steps& steps) {
  for (int64_t step : steps) write_test_step(run, step, {{"model.w", "F32", {2}, counted(2)}});
}

TEST(checkpoint_steps_prune, the_newest_the_multiples_and_what_is_later_stay) {
  const Steps all{10, 20, 30, 40, 50, 60};
  EXPECT_EQ(plan_prune(all, 60, {.keep = 2}).go, (Steps{10, 20, 30, 40}));
  EXPECT_EQ(plan_prune(all, 60, {.keep = 1, .every = 20}).keep, (Steps{20, 40, 60}));
  EXPECT_EQ(plan_prune(all, 40, {.keep = 1}).keep, (Steps{40, 50, 60}));
  EXPECT_EQ(plan_prune(all, 40, {.keep = 9}).go, Steps{});
  EXPECT_EQ(plan_prune({}, 40, {.keep = 1}).go, Steps{});
}

TEST(checkpoint_steps_prune, a_run_loses_its_old_steps_and_a_rehearsal_nothing) {
  PrivateFolder run;
  write_steps(run.path(), {1, 2, 3, 4});
  EXPECT_EQ(prune_run(run.path(), {.keep = 2}, true).go, (Steps{1, 2}));
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 2, 3, 4}));
  const auto plan = prune_run(run.path(), {.keep = 2}, false);
  EXPECT_EQ(plan.latest, 4);
  EXPECT_EQ(plan.go, (Steps{1, 2}));
  EXPECT_EQ(list_steps(run.path()), (Steps{3, 4}));
  size_t names = 0;  // two steps and `latest`: nothing half-deleted stays behind
  for (const auto& item : std::filesystem::directory_iterator(run.path()))
    names += !item.path().empty();
  EXPECT_EQ(names, 3u);
}

TEST(checkpoint_steps_prune, while_a_run_saves_nothing_is_deleted) {
  PrivateFolder run;
  write_steps(run.path(), {1, 2, 3});
  {
    StepDraft saving(run.path(), 4);
    EXPECT_THROW(prune_run(run.path(), {.keep = 1}, false), ResourceError);
    EXPECT_EQ(prune_run(run.path(), {.keep = 1}, true).go, (Steps{1, 2}));
  }
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 2, 3}));
  prune_run(run.path(), {.keep = 1}, false);
  EXPECT_EQ(list_steps(run.path()), Steps{3});
}

TEST(checkpoint_steps_prune, a_damaged_step_is_neither_counted_nor_deleted) {
  PrivateFolder run;
  write_steps(run.path(), {1, 2, 3, 4});
  std::filesystem::remove(run / "step-00000003/model.safetensors");
  std::filesystem::remove(run / "step-00000001/model.safetensors");
  const auto plan = prune_run(run.path(), {.keep = 2}, false);
  EXPECT_EQ(plan.damaged, (Steps{1, 3}));
  EXPECT_EQ(plan.keep, (Steps{2, 4}));
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 2, 3, 4}));
}

TEST(checkpoint_steps_prune, it_is_the_rule_of_the_run_and_what_it_cannot_know_is_refused) {
  for (int64_t latest : {10, 30, 60})
    for (int64_t keep : {1, 2, 9})
      for (int64_t every : {0, 20}) {
        const Steps all{10, 20, 30, 40, 50, 60};
        std::vector<SavedStep> steps;
        for (int64_t step : all) steps.push_back({step});
        const RetentionRule rule{.keep = keep, .every = every};
        const PrunePlan plan = plan_prune(all, latest, rule);
        EXPECT_EQ(plan.go, steps_to_delete(steps, latest, rule));
        EXPECT_EQ(plan.go.size() + plan.keep.size(), all.size());
      }
  PrivateFolder run;
  write_steps(run.path(), {1, 2});
  EXPECT_THROW(prune_run(run.path(), {.keep = 1, .best = 1}, false), UsageError);
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 2}));
}

TEST(checkpoint_steps_prune, a_latest_that_names_nothing_stops_it) {
  PrivateFolder run;
  write_steps(run.path(), {1, 2});
  write_text(run / "latest", "step-00000009\n");
  EXPECT_THROW(prune_run(run.path(), {.keep = 1}, false), Corrupt);
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 2}));
}

}  // namespace
}  // namespace trireme::test::prune_test
