// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/prune.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/steps/written_step.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/run_folder/step_links.h"

namespace trireme::test::prune_test {
namespace {

using Steps = std::vector<int64_t>;

std::vector<SavedStep> saved(const Steps& numbers) {
  std::vector<SavedStep> steps;
  for (int64_t step : numbers) steps.push_back({step});
  return steps;
}

Steps numbers(const std::vector<SavedStep>& steps) {
  Steps numbers;
  for (const SavedStep& s : steps) numbers.push_back(s.step);
  return numbers;
}

void write_steps(const std::string& run, const Steps& steps) {
  for (int64_t step : steps) write_test_step(run, step, {{"model.w", "F32", {2}, counted(2)}});
}

TEST(checkpoint_steps_prune, the_newest_the_multiples_and_what_is_later_stay) {
  const auto all = saved({10, 20, 30, 40, 50, 60});
  EXPECT_EQ(numbers(plan_prune(all, 60, {.keep = 2}).go), (Steps{10, 20, 30, 40}));
  EXPECT_EQ(numbers(plan_prune(all, 60, {.keep = 1, .every = 20}).keep), (Steps{20, 40, 60}));
  EXPECT_EQ(numbers(plan_prune(all, 40, {.keep = 1}).keep), (Steps{40, 50, 60}));
  EXPECT_TRUE(plan_prune(all, 40, {.keep = 9}).go.empty());
  EXPECT_TRUE(plan_prune({}, 40, {.keep = 1}).go.empty());
}

TEST(checkpoint_steps_prune, a_run_loses_its_old_steps_and_a_rehearsal_nothing) {
  PrivateFolder run;
  write_steps(run.path(), {1, 2, 3, 4});
  EXPECT_EQ(numbers(prune_run(run.path(), {.keep = 2}, true).go), (Steps{1, 2}));
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 2, 3, 4}));
  const auto plan = prune_run(run.path(), {.keep = 2}, false);
  EXPECT_EQ(plan.latest, 4);
  EXPECT_EQ(numbers(plan.go), (Steps{1, 2}));
  EXPECT_EQ(list_steps(run.path()), (Steps{3, 4}));
  size_t names = 0;  // two steps and `latest`: nothing half-deleted stays behind
  for (const auto& item : std::filesystem::directory_iterator(run.path()))
    names += !item.path().empty();
  EXPECT_EQ(names, 3u);
}

TEST(checkpoint_steps_prune, a_step_that_ended_an_epoch_or_was_interrupted_stays_with_its_name) {
  PrivateFolder run;
  write_steps(run.path(), {1, 2, 3, 4, 5});
  link_step(run.path(), epoch_link(1), 1);
  link_step(run.path(), kInterruptLink, 3);
  link_step(run.path(), kBestLink, 2);
  EXPECT_EQ(numbers(prune_run(run.path(), {.keep = 1}, false).go), (Steps{2, 4}));
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 3, 5}));
}

TEST(checkpoint_steps_prune, while_a_run_saves_nothing_is_deleted) {
  PrivateFolder run;
  write_steps(run.path(), {1, 2, 3});
  {
    StepDraft saving(run.path(), 4);
    EXPECT_THROW(prune_run(run.path(), {.keep = 1}, false), ResourceError);
    EXPECT_EQ(numbers(prune_run(run.path(), {.keep = 1}, true).go), (Steps{1, 2}));
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
  EXPECT_EQ(numbers(plan.keep), (Steps{2, 4}));
  EXPECT_EQ(list_steps(run.path()), (Steps{1, 2, 3, 4}));
}

TEST(checkpoint_steps_prune, it_is_the_rule_of_the_run) {
  std::vector<SavedStep> all = saved({10, 20, 30, 40, 50, 60});
  for (size_t i = 1; i < all.size(); ++i) all[i].loss = static_cast<double>((i * 7) % 5);
  for (int64_t latest : {10, 30, 60})
    for (int64_t keep : {1, 2, 9})
      for (int64_t best : {0, 1, 2})
        for (int64_t every : {0, 20}) {
          const RetentionRule rule{.keep = keep, .best = best, .every = every};
          const PrunePlan plan = plan_prune(all, latest, rule);
          EXPECT_EQ(numbers(plan.go), steps_to_delete(all, latest, rule));
          EXPECT_EQ(plan.go.size() + plan.keep.size(), all.size());
        }
}

TEST(checkpoint_steps_prune, the_best_are_known_by_the_losses_that_lie_in_the_steps) {
  PrivateFolder run;
  const std::vector<std::optional<double>> losses{2.0, 0.5, 1.0, {}, 3.0};
  for (size_t i = 0; i < losses.size(); ++i) {
    std::map<std::string, IndexValue> values;
    if (losses[i]) values[kHeldOutLoss] = *losses[i];
    write_test_step(run.path(), static_cast<int64_t>(i) + 1, {{"model.w", "F32", {2}, counted(2)}},
                    values);
  }
  EXPECT_EQ(numbers(prune_run(run.path(), {.keep = 1, .best = 2}, true).keep), (Steps{2, 3, 5}));
  const PrunePlan plan = prune_run(run.path(), {.keep = 1, .best = 1}, false);
  EXPECT_EQ(numbers(plan.go), (Steps{1, 3, 4}));
  EXPECT_EQ(plan.keep[0].loss, 0.5);
  EXPECT_EQ(list_steps(run.path()), (Steps{2, 5}));
}

TEST(checkpoint_steps_prune, the_best_of_steps_without_losses_are_refused) {
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
