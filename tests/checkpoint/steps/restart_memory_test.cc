// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/restart_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/checkpoint/steps/pretend_worker.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"

namespace restart_memory_test {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

using Steps = std::vector<int64_t>;
constexpr int kOfRanks = F_SEAL_SHRINK | F_SEAL_GROW;

class checkpoint_steps_restart_memory : public ::testing::Test {
 protected:
  checkpoint_steps_restart_memory() { fs::create_directory(run_); }
  ~checkpoint_steps_restart_memory() override { ::unsetenv(kHeldSnapshotsVariable); }

  PretendWorker worker(int rank, int64_t step) const {
    PretendWorker w;
    w.rank = rank, w.run_dir = run_, w.step = step, w.sums = true;
    w.save = ".tmp-" + step_folder_name(step) + "-new-1-0badcafe";
    w.latest = latest_, w.resumes = resumes_;
    return w;
  }
  static void hand(std::vector<HandedSnapshot>& to, const PretendWorker& w) {
    to.push_back({memory_of(w.bytes(), kOfRanks), w.rank});
  }
  /// Both ranks' memories.
  std::vector<HandedSnapshot> of_step(int64_t step) const {
    std::vector<HandedSnapshot> handed;
    for (int rank : {0, 1}) hand(handed, worker(rank, step));
    return handed;
  }
  /// The next worker's end of the text; it inherits copies of the descriptors.
  std::shared_ptr<HeldStep> taken(const std::string& text) const {
    std::string copies;
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, ',');) {
      const int fd = std::stoi(item);
      EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
      copies += (copies.empty() ? "" : ",") + std::to_string(::fcntl(fd, F_DUPFD_CLOEXEC, 3)) +
                item.substr(item.find(':'));
    }
    ::setenv(kHeldSnapshotsVariable, copies.c_str(), 1);
    const auto handed = take_handed_on();
    EXPECT_EQ(std::getenv(kHeldSnapshotsVariable), nullptr);
    return held_step_of(handed, run_);
  }

  PrivateFolder folder_;
  const std::string run_ = folder_ / "run";
  std::optional<std::string> latest_ = "";
  bool resumes_ = true;
};

}  // namespace

TEST_F(checkpoint_steps_restart_memory, the_next_workers_get_the_step_and_the_disk_gets_it_behind) {
  RestartMemory memory;
  memory.take(of_step(7));
  const auto step = taken(memory.hand_on());
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->note().step, 7);
  step->verify(0, 1);
  memory.write();
  EXPECT_EQ(list_steps(run_), Steps{7});
  EXPECT_EQ(read_file(run_ + "/latest"), "step-00000007\n");
}

TEST_F(checkpoint_steps_restart_memory, nobody_can_write_to_it_any_more) {
  auto handed = of_step(7);
  const UniqueFd of_the_dead(::fcntl(handed[0].fd.get(), F_DUPFD_CLOEXEC, 3));
  RestartMemory memory;
  memory.take(std::move(handed));
  EXPECT_EQ(::pwrite(of_the_dead.get(), "x", 1, 5000), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, of_the_dead.get(), 0),
            MAP_FAILED);
  EXPECT_NE(memory.hand_on(), "");
}

TEST_F(checkpoint_steps_restart_memory, memory_that_somebody_can_write_to_goes_to_the_disk_alone) {
  auto handed = of_step(7);
  void* left = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, handed[1].fd.get(), 0);
  ASSERT_NE(left, MAP_FAILED);
  RestartMemory memory;
  ::testing::internal::CaptureStderr();
  memory.take(std::move(handed));
  EXPECT_EQ(memory.hand_on(), "");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("can still write to it: the restart goes on from the disk"),
            std::string::npos)
      << said;
  EXPECT_EQ(list_steps(run_), Steps{7});
  ::munmap(left, 4096);
}

TEST_F(checkpoint_steps_restart_memory, a_copy_that_was_being_made_falls_back_to_the_one_before) {
  auto handed = of_step(7);
  PretendWorker made = worker(1, 9);
  made.complete = false;
  hand(handed, worker(0, 9));
  hand(handed, made);
  RestartMemory memory;
  memory.take(std::move(handed));
  const auto step = taken(memory.hand_on());
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->note().step, 7);
  EXPECT_EQ(memory.held(), 2u) << "of step 9 nothing is needed";
}

TEST_F(checkpoint_steps_restart_memory,
       workers_that_die_before_their_first_step_leave_the_old_one) {
  RestartMemory memory;
  memory.take(of_step(7));
  EXPECT_NE(memory.hand_on(), "");
  memory.ranks_have_snapshots(1);  // one of two
  PretendWorker made = worker(0, 9);
  made.complete = false;
  std::vector<HandedSnapshot> handed;
  hand(handed, made);
  memory.take(std::move(handed));
  EXPECT_EQ(taken(memory.hand_on())->note().step, 7);
  memory.take({});
  EXPECT_EQ(taken(memory.hand_on())->note().step, 7);
  memory.take(of_step(8));
  EXPECT_EQ(taken(memory.hand_on())->note().step, 8);
}

TEST_F(checkpoint_steps_restart_memory, it_is_given_back_when_all_ranks_have_their_own) {
  RestartMemory memory;
  memory.take(of_step(7));
  memory.hand_on();
  memory.write();
  memory.ranks_have_snapshots(1);
  EXPECT_EQ(memory.held(), 2u);
  memory.ranks_have_snapshots(2);
  EXPECT_EQ(memory.held(), 0u);
  EXPECT_EQ(memory.hand_on(), "");
}

TEST_F(checkpoint_steps_restart_memory, a_program_that_loads_from_the_disk_finds_the_step_there) {
  resumes_ = false;
  RestartMemory memory;
  memory.take(of_step(7));
  EXPECT_EQ(memory.hand_on(), "");
  EXPECT_EQ(list_steps(run_), Steps{7});
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(checkpoint_steps_restart_memory, what_is_held_is_on_the_disk_when_the_launcher_ends) {
  {
    RestartMemory memory;
    memory.take(of_step(7));
  }
  EXPECT_EQ(list_steps(run_), Steps{7});
}

TEST_F(checkpoint_steps_restart_memory, a_published_step_is_handed_on_and_not_written_again) {
  RestartMemory().take(of_step(7));
  const auto written = fs::last_write_time(run_ + "/step-00000007");
  RestartMemory memory;
  memory.take(of_step(7));
  EXPECT_EQ(taken(memory.hand_on())->note().step, 7);
  memory.write();
  EXPECT_EQ(fs::last_write_time(run_ + "/step-00000007"), written);
}

// A run that went back to step 5 of one that had 9.
TEST_F(checkpoint_steps_restart_memory, which_is_newer_is_told_by_what_was_published_since) {
  latest_ = "";
  RestartMemory().take(of_step(9));
  const auto note_of = [&](int64_t step) {
    std::vector<HandedSnapshot> handed = of_step(step);
    return held_saves(handed).saves.front().note();
  };
  EXPECT_TRUE(is_behind_the_disk(note_of(6)));
  EXPECT_TRUE(is_published(note_of(9)));
  EXPECT_FALSE(is_behind_the_disk(note_of(9)));
  EXPECT_FALSE(is_published(note_of(10)));
  latest_ = "step-00000009";  // as the snapshot was made: it comes after it
  EXPECT_FALSE(is_behind_the_disk(note_of(6)));
  EXPECT_FALSE(is_published(note_of(6)));
  RestartMemory().take(of_step(6));
  EXPECT_EQ(read_file(run_ + "/latest"), "step-00000006\n");
  EXPECT_TRUE(is_published(note_of(6)));
  EXPECT_FALSE(is_behind_the_disk(note_of(8))) << "6 was on its way as 8 was copied";
  latest_ = std::nullopt;  // of version 1
  EXPECT_TRUE(is_published(note_of(6)));
  EXPECT_FALSE(is_published(note_of(8)));
}

TEST_F(checkpoint_steps_restart_memory,
       bytes_that_changed_after_their_checksum_was_made_are_found) {
  std::vector<HandedSnapshot> handed;
  hand(handed, worker(0, 7));
  const PretendWorker second = worker(1, 7);
  std::string bytes = second.bytes();
  bytes[second.label().layout().data_at + second.label().offsets()[0] + 5] ^= 1;
  handed.push_back({memory_of(bytes, kOfRanks), 1});
  const auto step = held_step_of(handed, run_);
  ASSERT_NE(step, nullptr);
  step->verify(0, 2);
  try {
    step->verify(1, 2);
    FAIL();
  } catch (const Corrupt& e) {
    EXPECT_NE(std::string(e.what()).find("model-rank00001.safetensors: bytes "), std::string::npos)
        << e.what();
  }
}

TEST_F(checkpoint_steps_restart_memory, a_step_of_another_folder_is_not_taken) {
  RestartMemory memory;
  memory.take(of_step(7));
  memory.hand_on();
  std::vector<HandedSnapshot> handed = of_step(7);
  EXPECT_EQ(held_step_of(handed, folder_ / "other"), nullptr);
  EXPECT_NE(held_step_of(handed, run_ + "/../run"), nullptr);
}

TEST_F(checkpoint_steps_restart_memory, who_takes_no_step_closes_what_was_handed_on) {
  RestartMemory memory;
  memory.take(of_step(7));
  const UniqueFd copy(::fcntl(memory.offer().at(0)->fd.get(), F_DUPFD_CLOEXEC, 3));
  for (const char* other : {"", ",x", ",99999:0"}) {
    const int given = ::fcntl(copy.get(), F_DUPFD, 3);
    ::setenv(kHeldSnapshotsVariable, (std::to_string(given) + ":0" + other).c_str(), 1);
    forget_handed_on();
    EXPECT_EQ(std::getenv(kHeldSnapshotsVariable), nullptr);
    EXPECT_EQ(::fcntl(given, F_GETFD), -1) << other;
  }
}

TEST_F(checkpoint_steps_restart_memory, an_environment_that_is_not_the_launchers_is_refused) {
  const UniqueFd open = memory_of(worker(0, 7).bytes(), kOfRanks);
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const std::string& text :
       {std::string("x"), std::string("7"), std::string("7:0,"), std::string("-1:0"),
        std::string("1:0"), std::string("99999999999:0"), std::to_string(open.get()) + ":0",
        std::to_string(file.get()) + ":0"}) {
    ::setenv(kHeldSnapshotsVariable, text.c_str(), 1);
    EXPECT_THROW(take_handed_on(), Corrupt) << text;
    EXPECT_EQ(std::getenv(kHeldSnapshotsVariable), nullptr);
  }
  EXPECT_GE(::fcntl(open.get(), F_GETFD), 0) << "what is not ours is not closed";
  ::setenv(kHeldSnapshotsVariable, "", 1);
  EXPECT_TRUE(take_handed_on().empty());
}

}  // namespace restart_memory_test
