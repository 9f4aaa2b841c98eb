// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/held_step.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/checkpoint/split_state.h"
#include "tests/support/ranks.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"

namespace held_step_test {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A launcher that holds what the savers of this process hand over.
class checkpoint_held_step : public ::testing::Test {
 protected:
  checkpoint_held_step() { ::setenv(kSnapshotsVariable, path_.c_str(), 1); }
  ~checkpoint_held_step() override {
    ::unsetenv(kSnapshotsVariable);
    set_failpoints("");
  }

  /// All ranks save step 5, which is in memory and never published.
  void save_in_memory(Seat seat) {
    set_failpoints("checkpoint.before_publish=error(5)");
    run_threads(seat.world, [&](Group g) {
      Seat own = seat;
      own.rank = g.rank();
      SplitState state(own, 5);
      AsyncSaver saver(run_, g);
      saver.save(5, std::ref(state), {.layout = own.layout()});
      EXPECT_THROW(saver.wait(), ResourceError);
    });
    set_failpoints("");
    EXPECT_TRUE(list_steps(run_).empty());
    handed_ = holder_.take_all();
  }
  std::shared_ptr<HeldStep> held() const {
    std::map<int, std::unique_ptr<const HeldSnapshot>> by_rank;
    for (const HandedSnapshot& memory : handed_)
      if (auto snapshot = HeldSnapshot::open(memory.fd.get()))
        by_rank[memory.rank] = std::move(snapshot);
    std::vector<std::unique_ptr<const HeldSnapshot>> ranks;
    for (auto& [rank, snapshot] : by_rank) ranks.push_back(std::move(snapshot));
    return std::make_shared<HeldStep>(std::move(ranks));
  }

  PrivateFolder folder_;
  const std::string path_ = folder_ / "snapshots", run_ = folder_ / "run";
  SnapshotHolder holder_{path_};
  std::vector<HandedSnapshot> handed_;
};

class checkpoint_held_step_layouts : public checkpoint_held_step,
                                     public ::testing::WithParamInterface<Seat> {};

}  // namespace

TEST_P(checkpoint_held_step_layouts, loads_the_saved_bits_in_every_other_layout) {
  save_in_memory(GetParam());
  for (const Seat& other : {Seat{0, 1, 1, 0}, Seat{0, 2, 2, 3}, Seat{0, 3, 3, 1}, Seat{0, 4, 2, 2}})
    for (Seat seat = other; seat.rank < seat.world; ++seat.rank) {
      SplitState state(seat, -1);
      const auto info = load_snapshot(held(), std::ref(state), {.partial = true});
      EXPECT_EQ(info.step, 5);
      EXPECT_EQ(info.layout, GetParam().layout());
      EXPECT_TRUE(state.same_as(SplitState(seat, 5))) << seat.layout() << " rank " << seat.rank;
    }
  run_threads(2, [&](Group g) {
    SplitState state(seat_of(g, 2), -1);
    load_snapshot(held(), std::ref(state), {.group = g});
    EXPECT_TRUE(state.same_as(SplitState(seat_of(g, 2), 5)));
  });
}

// What a rescue writes is what the ranks would have written.
TEST_P(checkpoint_held_step_layouts, is_written_as_its_ranks_would_have_written_it) {
  save_in_memory(GetParam());
  const auto reports = rescue_snapshots(handed_);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].saved) << reports[0].text;
  save_split(folder_ / "calm", 5, GetParam());
  const std::string rescued = run_ + "/step-00000005/", calm = folder_ / "calm/step-00000005/";
  ASSERT_EQ(names_in(rescued), names_in(calm));
  for (const std::string& name : names_in(calm))
    EXPECT_TRUE(read_file(rescued + name) == read_file(calm + name)) << name;
  EXPECT_TRUE(all_load(run_, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(each, checkpoint_held_step_layouts,
                         ::testing::Values(Seat{0, 1, 1, 0}, Seat{0, 2, 1, 0}, Seat{0, 2, 2, 1},
                                           Seat{0, 3, 3, 3}, Seat{0, 4, 2, 3}),
                         [](const auto& info) {
                           return "ranks_" + std::to_string(info.param.world) + "_stage_" +
                                  std::to_string(info.param.stage);
                         });

TEST_F(checkpoint_held_step, damaged_bytes_are_found_and_if_checked_first_change_nothing) {
  save_in_memory({0, 2, 2, 3});
  ASSERT_EQ(handed_.size(), 4u) << "two buffers a rank";
  const auto snapshot = HeldSnapshot::open(handed_[0].fd.get());
  ASSERT_NE(snapshot, nullptr);
  const auto parsed_at = snapshot->plan().writes.front()[3];
  uint8_t byte = 0;
  // Where the data begin, as the mapping says.
  const auto memory = read_file("/proc/self/fd/" + std::to_string(handed_[0].fd.get()));
  const auto parsed =
      parse_snapshot({reinterpret_cast<const uint8_t*>(memory.data()), memory.size()});
  const auto at = static_cast<off_t>(parsed->layout.data_at) + parsed_at;
  ASSERT_EQ(::pread(handed_[0].fd.get(), &byte, 1, at), 1);
  byte ^= 1;
  ASSERT_EQ(::pwrite(handed_[0].fd.get(), &byte, 1, at), 1);
  SplitState state({0, 1, 1, 0}, -1);
  EXPECT_THROW(load_snapshot(held(), std::ref(state), {.check_first = true}), Corrupt);
  EXPECT_TRUE(state.same_as(SplitState({0, 1, 1, 0}, -1)));
  EXPECT_THROW(load_snapshot(held(), std::ref(state), {}), Corrupt);
}

TEST_F(checkpoint_held_step, an_unfinished_copy_is_no_snapshot) {
  run_threads(1, [&](Group g) {
    SplitState state({0, 1, 1, 0}, 5);
    AsyncSaver saver(run_, g);
    saver.save(5, std::ref(state), {.layout = "test"});
    saver.wait();
    const auto held = holder_.take_all();
    ASSERT_EQ(held.size(), 2u);
    EXPECT_NE(HeldSnapshot::open(held[0].fd.get()), nullptr);
    EXPECT_EQ(HeldSnapshot::open(held[1].fd.get()), nullptr) << "the second buffer has none yet";
    EXPECT_TRUE(rescue_snapshots(held).empty()) << "it is published";
  });
}

TEST_F(checkpoint_held_step, savers_that_end_well_leave_nothing_with_the_launcher) {
  run_threads(2, [&](Group g) {
    SplitState state(seat_of(g, 2), 5);
    AsyncSaver saver(run_, g);
    saver.save(5, std::ref(state), {.layout = "test"});
    saver.save(6, std::ref(state), {.layout = "test"});
    saver.wait();
  });
  EXPECT_TRUE(holder_.take_all().empty());
}

TEST_F(checkpoint_held_step, memory_that_grows_is_handed_over_anew) {
  run_threads(1, [&](Group g) {
    AsyncSaver saver(run_, g);
    for (int64_t numel : {100, 100'000}) {
      const at::Tensor t = at::full({numel}, static_cast<double>(numel));
      saver.save(numel, [&](StateVisitor& v) { v.tensor("model.w", t); }, {.layout = "test"});
      saver.wait();
    }
    const auto held = holder_.take_all();
    EXPECT_EQ(held.size(), 2u);
    EXPECT_EQ(HeldSnapshot::open(held[1].fd.get())->note().step, 100'000);
  });
}

}  // namespace held_step_test
