// SPDX-License-Identifier: Apache-2.0
// checkpoint.snapshot_every: steps in memory that a launcher holds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/base/error.h"
#include "trireme/base/failpoint.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"
#include "trireme/train/trainer.h"

namespace snapshots_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Steps = std::vector<int64_t>;

class train_snapshots : public ::testing::Test {
 protected:
  train_snapshots() { ::setenv(kSnapshotsVariable, path_.c_str(), 1); }
  ~train_snapshots() override { ::unsetenv(kSnapshotsVariable); }

  /// Two ranks that fail when they have done so many steps; which steps are whole in memory then.
  Steps held_after(int steps, const Sets& sets) {
    run_threads(
        2,
        [&](Group g) {
          TrainOptions options;
          options.run_dir = folders_.run("run");
          int looks = 0;
          options.stop_asked = [&] {
            if (looks++ == steps) throw std::runtime_error("a rank fails");
            return 0;
          };
          EXPECT_THROW(train(tiny_gpt(folders_.corpus, sets), g, options), std::runtime_error);
        },
        std::chrono::seconds(120));
    handed_ = holder_.take_all();
    Steps held;
    for (HeldSave& save : held_saves(handed_).saves) {
      if (!save.is_whole()) continue;
      held.push_back(save.note().step);
      HeldStep(save.take_snapshots()).verify(0, 1);
    }
    return held;
  }

  Folders folders_;
  PrivateFolder private_;
  const std::string path_ = private_ / "snapshots";
  SnapshotHolder holder_{path_};
  std::vector<HandedSnapshot> handed_;
};

}  // namespace

TEST_F(train_snapshots, steps_between_checkpoints_are_in_the_launchers_memory) {
  const std::string run = folders_.run("run");
  EXPECT_EQ(held_after(5, {"checkpoint.snapshot_every=0"}), Steps{});
  EXPECT_EQ(held_after(5, {"checkpoint.snapshot_every=1"}), (Steps{5, 4}));
  EXPECT_EQ(held_after(5, {"checkpoint.snapshot_every=3", "zero_optimization.stage=3"}), Steps{3});
  EXPECT_TRUE(list_steps(run).empty()) << "nothing was written";
}

TEST_F(train_snapshots, they_leave_the_copy_that_is_being_written_as_it_is) {
  const Sets sets = {"checkpoint.snapshot_every=1", "checkpoint.every=3", "checkpoint.async=true"};
  set_failpoints("checkpoint.before_publish=sleep(1500)");
  EXPECT_EQ(held_after(5, sets), (Steps{5, 3}));
  set_failpoints("");
  EXPECT_EQ(list_steps(folders_.run("run")), Steps{3});
}

TEST_F(train_snapshots, a_run_that_ends_well_leaves_nothing) {
  run_threads(2, [&](Group g) {
    TrainOptions options;
    options.run_dir = folders_.run("run");
    train(tiny_gpt(folders_.corpus, {"checkpoint.snapshot_every=1"}), g, options);
  });
  EXPECT_TRUE(holder_.take_all().empty());
}

TEST_F(train_snapshots, without_a_launcher_that_holds_them_they_are_refused_by_name) {
  ::unsetenv(kSnapshotsVariable);
  run_threads(2, [&](Group g) {
    TrainOptions options;
    options.run_dir = folders_.run("run");
    EXPECT_TRUE(has(refusal([&] {
                      train(tiny_gpt(folders_.corpus, {"checkpoint.snapshot_every=1"}), g, options);
                    }),
                    "checkpoint.snapshot_every is 1, and no launcher of ours holds snapshots"));
  });
}

}  // namespace snapshots_test
