// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/saver_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/captured_log.h"
#include "tests/support/file_log.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/process/process_id.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/run_folder/saver_lock_file.h"

// Two savers of one run folder, on file systems with and without locks.
namespace trireme::test::saver_lock_test {
namespace {

using namespace std::chrono_literals;
using trireme::testing::CapturedLog;
using trireme::testing::FileFaults;
namespace fs = std::filesystem;

constexpr SaverLock::Times kQuick{.beat = 5ms, .silence = 300ms};

/// As NFS answers.
std::string without_locks(const std::string& run) { return "only=" + run + ",lock:ENOLCK"; }

std::string lock_file(const PrivateFolder& run) { return run / SaverLock::kFileName; }

size_t names_in(const std::string& folder) {
  size_t n = 0;
  for (const auto& item : fs::directory_iterator(folder)) n += !item.path().empty();
  return n;
}

/// A child that takes the lock, says so, and waits to be killed.
class HolderProcess {
 public:
  HolderProcess(const std::string& run, const std::string& faults) {
    int said[2];
    if (::pipe(said) != 0) fail<Error>("pipe: {}", errno_text());
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(60);
      set_file_faults(faults);
      const auto lock = SaverLock::try_take(run);
      const char answer = lock ? 'y' : 'n';
      if (::write(said[1], &answer, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(said[1]);
    char answer = 0;
    took_ = ::read(said[0], &answer, 1) == 1 && answer == 'y';
    ::close(said[0]);
  }
  ~HolderProcess() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  bool took() const { return took_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  bool took_;
};

TEST(checkpoint_steps_saver_lock, one_saver_at_a_time_with_locks_and_without) {
  for (const bool has_locks : {true, false}) {
    PrivateFolder run;
    const std::string faults = has_locks ? "" : without_locks(run.path());
    const FileFaults here(faults);
    {
      const auto first = SaverLock::try_take(run.path());
      ASSERT_TRUE(first.has_value());
      EXPECT_NO_THROW(first->check_ours());
      EXPECT_FALSE(SaverLock::try_take(run.path()).has_value()) << has_locks;
      EXPECT_FALSE(HolderProcess(run.path(), faults).took()) << has_locks;
      EXPECT_EQ(fs::exists(lock_file(run)), !has_locks);
    }
    EXPECT_TRUE(HolderProcess(run.path(), faults).took()) << "it was let go";
  }
}

TEST(checkpoint_steps_saver_lock, without_locks_a_live_holder_is_named_and_a_dead_one_is_replaced) {
  PrivateFolder run;
  const FileFaults here(without_locks(run.path()));
  HolderProcess other(run.path(), without_locks(run.path()));
  ASSERT_TRUE(other.took());
  std::string holder;
  EXPECT_FALSE(SaverLock::try_take(run.path(), &holder).has_value());
  EXPECT_EQ(holder, fmt::format("process {} on {}", other.pid(), own_process_id().host));
  other.end();
  CapturedLog log;
  EXPECT_TRUE(SaverLock::try_take(run.path()).has_value());
  EXPECT_EQ(log.with("was left by process").size(), 1u);
  EXPECT_EQ(names_in(run.path()), 0u) << "nothing is left behind";
}

TEST(checkpoint_steps_saver_lock, who_has_locks_heeds_who_has_none) {
  PrivateFolder run;
  HolderProcess other(run.path(), without_locks(run.path()));
  ASSERT_TRUE(other.took());
  EXPECT_FALSE(SaverLock::try_take(run.path()).has_value());
  other.end();
  CapturedLog log;
  EXPECT_TRUE(SaverLock::try_take(run.path()).has_value());
  EXPECT_EQ(names_in(run.path()), 0u);
}

TEST(checkpoint_steps_saver_lock, of_two_jobs_the_second_is_refused_and_harms_nothing) {
  PrivateFolder run;
  const FileFaults here(without_locks(run.path()));
  StepDraft first(run.path(), 1);
  write_text(first.folder() + "/" + CheckpointIndex::kFileName, "of the first");
  EXPECT_EQ(trireme::testing::end_of_child(without_locks(run.path()),
                                           [&] { StepDraft second(run.path(), 2, 20ms); }),
            fmt::format("ResourceError: another process is saving a checkpoint in {} (process {} "
                        "on {}), or prunes it or imports into it, and has not finished within "
                        "0.02 s: give each run a folder of its own (--run-dir), and import into a "
                        "folder in which no run saves",
                        run.path(), ::getpid(), own_process_id().host));
  first.publish();
  first.settle(2);
  EXPECT_EQ(read_file(run / "step-00000001/trireme.index.json"), "of the first");
}

TEST(checkpoint_steps_saver_lock, of_two_savers_in_one_process_the_second_is_told_that_it_is_so) {
  for (const bool has_locks : {true, false}) {
    PrivateFolder run;
    const std::string faults = has_locks ? "" : without_locks(run.path());
    const FileFaults here(faults);
    const StepDraft model(run.path(), 1);
    std::string text;
    try {
      StepDraft averaged(run.path(), 2);
    } catch (const ResourceError& e) {
      text = e.what();
    }
    EXPECT_EQ(text, "another saver of this process is saving a checkpoint in " + run.path() +
                        ": save all that belongs to the run with one saver, or give each saver a "
                        "folder of its own")
        << has_locks;
    // A child has the descriptor, and is another process.
    EXPECT_NE(trireme::testing::end_of_child(faults, [&] { StepDraft theirs(run.path(), 2, 20ms); })
                  .find("another process is saving"),
              std::string::npos)
        << has_locks;
  }
}

// `trireme checkpoint prune` has the lock for a moment.
TEST(checkpoint_steps_saver_lock, a_save_waits_for_a_holder_that_lets_go) {
  for (const bool has_locks : {true, false}) {
    PrivateFolder run;
    const std::string faults = has_locks ? "" : without_locks(run.path());
    const FileFaults here(faults);
    HolderProcess other(run.path(), faults);
    ASSERT_TRUE(other.took());
    CapturedLog log;
    std::thread ends([&] {
      std::this_thread::sleep_for(300ms);
      other.end();
    });
    const auto begin = Clock::now();
    {
      StepDraft draft(run.path(), 1, 30s);
      EXPECT_GE(Clock::now() - begin, 300ms);
      draft.publish();
    }
    ends.join();
    EXPECT_TRUE(fs::exists(run / "step-00000001")) << has_locks;
  }
}

TEST(checkpoint_steps_saver_lock, a_save_waits_only_so_long_for_a_holder_that_never_lets_go) {
  PrivateFolder run;
  HolderProcess other(run.path(), "");
  ASSERT_TRUE(other.took());
  const auto begin = Clock::now();
  std::string text;
  try {
    StepDraft draft(run.path(), 1, 200ms);
  } catch (const ResourceError& e) {
    text = e.what();
  }
  EXPECT_GE(Clock::now() - begin, 200ms);
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_NE(text.find("another process is saving a checkpoint in " + run.path() +
                      ", or prunes it or imports into it, and has not finished within 0.2 s"),
            std::string::npos)
      << text;
  EXPECT_EQ(names_in(run.path()), 0u);
}

/// A holder that this kernel knows nothing of.
ProcessId far_away() { return {"node9", "another boot", "pid:[1]", 77, 1}; }

TEST(checkpoint_steps_saver_lock, a_holder_on_another_host_that_renews_its_file_lives) {
  PrivateFolder run;
  const FileFaults here(without_locks(run.path()));
  write_text(lock_file(run), saver_lock_text(far_away(), "t"));
  std::atomic<bool> ends = false;
  std::thread renews([&] {
    while (!ends) {
      file_calls::touch(lock_file(run));
      std::this_thread::sleep_for(5ms);
    }
  });
  std::string holder;
  EXPECT_FALSE(SaverLock::try_take(run.path(), &holder, {.beat = 5ms, .silence = 30s}).has_value());
  EXPECT_EQ(holder, "process 77 on node9");
  ends = true;
  renews.join();
}

TEST(checkpoint_steps_saver_lock, a_holder_on_another_host_that_is_silent_for_long_is_dead) {
  for (const std::string& text : {saver_lock_text(far_away(), "t"), std::string("nonsense"),
                                  std::string(), std::string(10000, '\n')}) {
    PrivateFolder run;
    const FileFaults here(without_locks(run.path()));
    write_text(lock_file(run), text);
    CapturedLog log;
    const auto begin = Clock::now();
    const auto lock = SaverLock::try_take(run.path(), nullptr, kQuick);
    ASSERT_TRUE(lock.has_value());
    EXPECT_GE(Clock::now() - begin, kQuick.silence);
    EXPECT_NO_THROW(lock->check_ours());
  }
}

TEST(checkpoint_steps_saver_lock, a_holder_renews_its_file_and_lets_another_hosts_wait_in_vain) {
  PrivateFolder run;
  const FileFaults here(without_locks(run.path()));
  const auto lock = SaverLock::try_take(run.path(), nullptr, kQuick);
  ASSERT_TRUE(lock.has_value());
  const auto first = fs::last_write_time(lock_file(run));
  const auto deadline = Deadline::after(30s);
  while (fs::last_write_time(lock_file(run)) == first && !deadline.expired())
    std::this_thread::sleep_for(1ms);
  EXPECT_NE(fs::last_write_time(lock_file(run)), first);
}

TEST(checkpoint_steps_saver_lock, who_was_taken_for_dead_publishes_nothing) {
  PrivateFolder run;
  const FileFaults here(without_locks(run.path()));
  CapturedLog log;
  StepDraft draft(run.path(), 5);
  fs::remove(lock_file(run));
  write_text(lock_file(run), saver_lock_text(far_away(), "t"));
  std::string text;
  try {
    draft.publish();
  } catch (const ResourceError& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("process 77 on node9 took it for dead"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(run / "step-00000005"));
  EXPECT_EQ(read_file(lock_file(run)), saver_lock_text(far_away(), "t")) << "the other's stays";
}

TEST(checkpoint_steps_saver_lock, killed_at_any_call_it_is_taken_again_and_leaves_nothing) {
  for (int number = 1; number < 40; ++number) {
    PrivateFolder run;
    const std::string faults =
        without_locks(run.path()) + "," + std::to_string(number) + ":kill-after";
    const std::string end = trireme::testing::end_of_child(faults, [&] {
      StepDraft draft(run.path(), 1);
      draft.publish();
      draft.settle(1);
    });
    const FileFaults here(without_locks(run.path()));
    CapturedLog log;
    {
      StepDraft draft(run.path(), 2);
      draft.publish();
      draft.settle(9);
    }
    for (const auto& item : fs::directory_iterator(run.path())) {
      const std::string name = item.path().filename().string();
      EXPECT_TRUE(name == "latest" || name.starts_with("step-")) << number << ": " << name;
    }
    if (end.empty()) return;  // it made fewer calls
    ASSERT_EQ(end, "killed") << number;
  }
  FAIL() << "a save makes fewer than 40 calls";
}

TEST(checkpoint_steps_saver_lock, where_there_are_neither_locks_nor_links_saving_is_refused) {
  PrivateFolder run;
  const FileFaults here(without_locks(run.path()) + ",link:EOPNOTSUPP");
  try {
    SaverLock::try_take(run.path());
    FAIL() << "it was taken";
  } catch (const ResourceError& e) {
    EXPECT_NE(std::string(e.what()).find("neither locks nor links"), std::string::npos) << e.what();
  }
  EXPECT_EQ(names_in(run.path()), 0u);
}

TEST(checkpoint_steps_saver_lock, what_a_file_says_is_read_back_and_nonsense_names_nobody) {
  const ProcessId self = own_process_id();
  EXPECT_EQ(read_saver_lock(saver_lock_text(self, "t")), self);
  const std::string text = saver_lock_text(far_away(), "t");
  for (size_t n = 0; n + 3 < text.size(); ++n)
    if (const auto who = read_saver_lock(text.substr(0, n))) {
      EXPECT_EQ(who->pid, 77) << n;
    }
  EXPECT_EQ(read_saver_lock("trireme saving lock, version 1\na\nb\nc\n-4\n5\n"), std::nullopt);
  EXPECT_EQ(read_saver_lock("trireme saving lock, version 1\na\nb\nc\n4x\n5\n"), std::nullopt);
  EXPECT_EQ(read_saver_lock("trireme saving lock, version 2\na\nb\nc\n4\n5\n"), std::nullopt);
}

}  // namespace
}  // namespace trireme::test::saver_lock_test
