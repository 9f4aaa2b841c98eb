// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/part_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>

#include "tests/checkpoint/steps/pretend_worker.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace part_memory_test {

using namespace trireme;
using namespace trireme::test;

namespace {

using Steps = std::vector<int64_t>;

class checkpoint_steps_part_memory : public ::testing::Test {
 protected:
  checkpoint_steps_part_memory() { std::filesystem::create_directory(run_); }

  PretendWorker worker(int rank, int64_t step) const {
    PretendWorker w;
    w.rank = rank, w.run_dir = run_, w.step = step, w.sums = true;
    w.save = save(step), w.latest = "", w.resumes = resumes_;
    return w;
  }
  static std::string save(int64_t step) {
    return ".tmp-" + step_folder_name(step) + "-new-1-0badcafe";
  }
  std::vector<HandedSnapshot> parts(const std::vector<std::pair<int, int64_t>>& of) const {
    std::vector<HandedSnapshot> handed;
    for (const auto& [rank, step] : of)
      handed.push_back({memory_of(worker(rank, step).bytes()), rank});
    return handed;
  }
  /// What two hosts agree on, of which one has nothing of its own.
  SpreadStep step_of(const PartMemory& memory) const {
    HostParts other = memory.report();
    other.address = "h:1", other.room = 1u << 30;
    return choose_spread_step({other}).step.value();
  }

  PrivateFolder folder_;
  const std::string run_ = folder_ / "run";
  bool resumes_ = true;
};

}  // namespace

TEST_F(checkpoint_steps_part_memory, a_hosts_parts_are_told_and_sealed) {
  auto handed = parts({{1, 4}, {1, 7}});
  const UniqueFd of_the_dead(::fcntl(handed[0].fd.get(), F_DUPFD_CLOEXEC, 3));
  PartMemory memory;
  memory.take(std::move(handed), {});
  EXPECT_EQ(memory.report().attempt, -1);
  ASSERT_EQ(memory.report().parts.size(), 2u);
  for (const SpreadPart& part : memory.report().parts) {
    EXPECT_EQ(part.save, save(part.step));
    EXPECT_EQ(part.rank, 1);
    EXPECT_EQ(part.world, 2);
    EXPECT_FALSE(part.behind);
    EXPECT_GE(memory.part(part.save, 1), 0);
  }
  EXPECT_EQ(memory.part(save(4), 0), -1);
  EXPECT_EQ(::pwrite(of_the_dead.get(), "x", 1, 5000), -1);
  EXPECT_TRUE(list_steps(run_).empty()) << "half of a step is no step";
}

TEST_F(checkpoint_steps_part_memory,
       what_was_fetched_goes_and_the_hosts_own_stays_for_the_next_death) {
  PartMemory memory;
  memory.take(parts({{0, 4}, {0, 7}}), {});
  SpreadStep step{run_, save(7), 7, {}};
  EXPECT_NE(memory.hand_on(step, parts({{1, 7}}), 3), "");
  EXPECT_EQ(memory.held(), 2u) << "of step 4 nothing is needed";
  memory.write_behind({});
  SnapshotHolder nobody(folder_ / "socket");
  memory.see(nobody);
  EXPECT_EQ(memory.held(), 1u);
  memory.take({}, {});  // they died before they had a snapshot
  EXPECT_EQ(list_steps(run_), Steps{7});
  const HostParts report = memory.report();
  EXPECT_EQ(report.attempt, 3);
  ASSERT_EQ(report.parts.size(), 1u);
  EXPECT_EQ(report.parts[0].step, 7);
  memory.hand_on_nothing(4);
  EXPECT_EQ(memory.report().attempt, 4);
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(checkpoint_steps_part_memory, copies_of_other_hosts_parts_make_a_step_whole_here) {
  {
    PartMemory memory;
    memory.take(parts({{0, 7}}), {});
    memory.take_copies(parts({{1, 7}}));
    EXPECT_EQ(step_of(memory).step, 7);
  }
  EXPECT_EQ(list_steps(run_), Steps{7}) << "nobody else can write it when the launcher ends";
}

TEST_F(checkpoint_steps_part_memory, memory_that_somebody_can_write_to_is_not_told) {
  auto handed = parts({{0, 7}});
  void* left = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, handed[0].fd.get(), 0);
  ASSERT_NE(left, MAP_FAILED);
  PartMemory memory;
  ::testing::internal::CaptureStderr();
  memory.take(std::move(handed), {});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("can still write to it"),
            std::string::npos);
  EXPECT_TRUE(memory.report().parts.empty());
  ::munmap(left, 4096);
}

TEST_F(checkpoint_steps_part_memory, a_program_that_loads_from_the_disk_finds_a_whole_step_there) {
  resumes_ = false;
  PartMemory memory;
  memory.take(parts({{0, 7}, {1, 7}}), {});
  EXPECT_EQ(list_steps(run_), Steps{7});
  EXPECT_TRUE(memory.report().parts.empty());
}

TEST_F(checkpoint_steps_part_memory, who_holds_rank_0s_part_sees_that_the_disk_is_past_it) {
  resumes_ = false;
  PartMemory().take(parts({{0, 9}, {1, 9}}), {});
  resumes_ = true;
  PartMemory memory;
  memory.take(parts({{0, 7}, {1, 7}}), {});
  for (const SpreadPart& part : memory.report().parts) EXPECT_EQ(part.behind, part.rank == 0);
}

TEST_F(checkpoint_steps_part_memory, a_rank_that_begins_its_second_snapshot_is_seen) {
  SnapshotHolder holder(folder_ / "socket");
  ::setenv(kSnapshotsVariable, (folder_ / "socket").c_str(), 1);
  SnapshotHandover rank(0);
  ::unsetenv(kSnapshotsVariable);
  const UniqueFd first = memory_of(worker(0, 4).bytes()),
                 empty = memory_of(std::string(8192, '\0'));
  PretendWorker under_way = worker(0, 8);
  under_way.complete = false;
  const UniqueFd second = memory_of(under_way.bytes());
  rank.hold(0, first.get());
  rank.hold(1, empty.get());
  holder.serve();
  EXPECT_FALSE(holder.has_a_second());
  rank.hold(1, second.get());
  holder.serve();
  EXPECT_TRUE(holder.has_a_second());
  PartMemory memory;
  memory.take(parts({{0, 2}}), {});
  memory.see(holder);
  EXPECT_EQ(memory.held(), 0u);
}

}  // namespace part_memory_test
