// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/run_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/captured_log.h"
#include "tests/support/file_log.h"
#include "tests/support/processes.h"
#include "tests/support/refusals.h"
#include "tests/support/sanitized.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"

namespace trireme::launch::run_lock_test {
namespace {

using trireme::testing::CapturedLog;
using trireme::testing::FileFaults;
using trireme::testing::has;

using std::chrono::milliseconds;
using A = LockAnswer;
using P = Presence;

TEST(launch_run_lock, the_table_of_decisions) {
  const std::optional<bool> held = true, is_free = false, unknown;
  struct Row {
    bool named;
    P owner;
    std::optional<bool> held;
    A without, with;  // --take-over
  };
  const Row rows[] = {
      // Nobody is named: free, or somebody is about to write a name.
      {false, P::dead, is_free, A::take, A::take},
      {false, P::dead, unknown, A::take, A::take},
      {false, P::dead, held, A::wait, A::wait},
      // A living job on this host keeps its folder, whatever is said.
      {true, P::alive, held, A::refuse_running, A::refuse_running},
      {true, P::alive, is_free, A::refuse_running, A::refuse_running},
      {true, P::alive, unknown, A::refuse_running, A::refuse_running},
      // A dead one leaves it, as soon as its workers are gone.
      {true, P::dead, is_free, A::take, A::take},
      {true, P::dead, unknown, A::take, A::take},
      {true, P::dead, held, A::wait, A::wait},
      // Of another container on this kernel the kernel knows.
      {true, P::hidden, held, A::refuse_running, A::refuse_running},
      {true, P::hidden, is_free, A::take, A::take},
      {true, P::hidden, unknown, A::refuse_elsewhere, A::take},
      // Of another host the user must know.
      {true, P::elsewhere, is_free, A::refuse_elsewhere, A::take},
      {true, P::elsewhere, held, A::refuse_elsewhere, A::take},
      {true, P::elsewhere, unknown, A::refuse_elsewhere, A::take},
  };
  for (const Row& row : rows) {
    const LockQuestion q{row.named, row.owner, row.held, false};
    LockQuestion over = q;
    over.take_over = true;
    const auto text = ::testing::Message()
                      << "owner " << static_cast<int>(row.owner) << " named " << row.named
                      << " held " << (row.held ? static_cast<int>(*row.held) : -1);
    EXPECT_EQ(answer_of(q), row.without) << text;
    EXPECT_EQ(answer_of(over), row.with) << text;
  }
}

TEST(launch_run_lock, where_the_name_is_the_lock_an_unseen_owner_lives_as_long_as_it_renews_it) {
  for (const P owner : {P::hidden, P::elsewhere})
    for (const bool take_over : {false, true}) {
      LockQuestion q{true, owner, std::nullopt, take_over};
      q.renewed = true;
      EXPECT_EQ(answer_of(q), take_over ? A::take : A::refuse_running);
      q.renewed = false;
      EXPECT_EQ(answer_of(q), A::take);
      // Of one on this kernel, the kernel's lock says more.
      q.held = true;
      if (owner == P::hidden) {
        EXPECT_EQ(answer_of(q), A::refuse_running);
      }
    }
}

std::string refusal(const std::string& folder, const RunLockOptions& options = {}) {
  try {
    RunLock lock(folder, options);
    return "";
  } catch (const ResourceError& e) {
    return e.what();
  }
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

/// A process that runs `body`, says so, and then waits to be killed.
class Holder {
 public:
  explicit Holder(const std::function<void()>& body) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      body();
      ::close(ends[1]);
      while (true) ::pause();
    }
    ::close(ends[1]);
    char byte;
    [[maybe_unused]] auto n = ::read(ends[0], &byte, 1);  // the end: it has done its part
    ::close(ends[0]);
  }
  ~Holder() { kill(); }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(launch_run_lock, a_folder_has_one_owner_and_the_refusal_names_host_and_pid) {
  PrivateFolder folder;
  Holder holder([&] { new RunLock(folder.path()); });
  const std::string text = refusal(folder.path());
  EXPECT_TRUE(has(text, "process " + std::to_string(holder.pid()) + " on " + own_process_id().host))
      << text;
  EXPECT_TRUE(has(text, "--run-dir")) << text;
  // A living job is never taken over.
  EXPECT_TRUE(has(refusal(folder.path(), {.take_over = true}), "trains in it"));
}

TEST(launch_run_lock, a_killed_owner_leaves_the_folder_to_the_next) {
  PrivateFolder folder;
  {
    Holder holder([&] { new RunLock(folder.path()); });
    holder.kill();
  }
  ASSERT_TRUE(std::filesystem::exists(folder / "run.lock"));
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(launch_run_lock, who_leaves_removes_the_file) {
  PrivateFolder folder;
  { RunLock lock(folder.path()); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(launch_run_lock, a_killed_owners_workers_are_waited_for) {
  PrivateFolder folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  pid_t worker = -1;
  {
    // A launcher that starts a worker and is killed; the worker goes on.
    Holder holder([&] {
      auto* lock = new RunLock(folder.path());
      lock->pass_on();
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::setsid();
        for (int fd = 3; fd < 100; ++fd)
          if (fd != lock->fd()) ::close(fd);
        while (true) ::pause();
      }
      [[maybe_unused]] auto n = ::write(ends[1], &pid, sizeof pid);
    });
    ASSERT_EQ(::read(ends[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
    holder.kill();
  }
  ::close(ends[0]);
  ::close(ends[1]);
  const std::string text = refusal(folder.path(), {.patience = milliseconds(100)});
  EXPECT_TRUE(has(text, "a process that it started runs on")) << text;
  const auto start = Clock::now();
  const pid_t killer = ::fork();
  if (killer == 0) {
    ::usleep(200'000);
    ::kill(worker, SIGKILL);
    ::_exit(0);
  }
  EXPECT_EQ(refusal(folder.path(), {.patience = std::chrono::seconds(30)}), "");
  EXPECT_GT(seconds_since(start), 0.1);
  ::waitpid(killer, nullptr, 0);
}

TEST(launch_run_lock, another_hosts_lock_is_taken_with_take_over_alone) {
  PrivateFolder folder;
  LockOwner there{{"node7", "another-boot", "pid:[1]", 4711, 12}, "2026-11-22T16:50:07Z"};
  write(folder / "run.lock", lock_text(there));
  const std::string text = refusal(folder.path());
  for (const char* part : {"4711", "node7", "2026-11-22T16:50:07Z", "--take-over"})
    EXPECT_TRUE(has(text, part)) << text;
  EXPECT_EQ(read_file(folder / "run.lock"), lock_text(there)) << "a refusal changed the lock";
  EXPECT_EQ(refusal(folder.path(), {.take_over = true}), "");
}

TEST(launch_run_lock, an_owner_that_was_taken_over_leaves_the_new_one_alone) {
  PrivateFolder folder;
  LockOwner thief{{"node7", "another-boot", "pid:[1]", 4711, 12}, "2026-11-22T16:50:07Z"};
  {
    RunLock lock(folder.path());
    write(folder / "run.lock", lock_text(thief));  // from another host: no lock of the kernel there
  }
  EXPECT_EQ(read_file(folder / "run.lock"), lock_text(thief));
}

TEST(launch_run_lock, an_empty_file_is_no_owner_and_other_bytes_are_refused) {
  PrivateFolder folder;
  write(folder / "run.lock", "");
  EXPECT_EQ(refusal(folder.path()), "");
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string("{\"format\":\"other\",\"version\":1}"),
        std::string("{\"format\":\"trireme-run-lock\",\"version\":1,\"pid\":\"x\"}"),
        std::string(100'000, 'x')}) {
    write(folder / "run.lock", text);
    EXPECT_THROW(RunLock(folder.path()), Corrupt) << text.substr(0, 60);
    EXPECT_EQ(read_file(folder / "run.lock"), text);
  }
}

TEST(launch_run_lock, a_newer_version_is_refused_naming_both) {
  PrivateFolder folder;
  write(folder / "run.lock", "{\"format\":\"trireme-run-lock\",\"version\":9,\"pid\":3}\n");
  try {
    RunLock lock(folder.path());
    FAIL() << "taken";
  } catch (const UsageError& e) {
    EXPECT_TRUE(has(e.what(), "version 9") && has(e.what(), "version 1")) << e.what();
  }
}

TEST(launch_run_lock, a_program_that_is_executed_goes_on_with_it) {
  PrivateFolder folder;
  {
    static auto* lock = new RunLock(folder.path());  // never destroyed, as if by an exec
    lock->pass_on();
    const RunLock adopted = RunLock::adopt(folder.path(), ::dup(lock->fd()));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "run.lock"));
}

TEST(launch_run_lock, a_link_in_place_of_the_file_is_not_followed) {
  PrivateFolder folder;
  write(folder / "precious", "text");
  std::filesystem::create_symlink("precious", folder / "run.lock");
  EXPECT_NE(refusal(folder.path()), "");
  EXPECT_EQ(read_file(folder / "precious"), "text");
}

TEST(launch_run_lock, a_pipe_in_place_of_the_file_is_refused) {
  PrivateFolder folder;
  ASSERT_EQ(::mkfifo((folder / "run.lock").c_str(), 0600), 0);
  EXPECT_EQ(refusal(folder.path()), folder / "run.lock" + " is not a regular file: remove it");
}

TEST(launch_run_lock, a_disk_that_does_not_say_who_has_the_folder_gives_it_to_nobody) {
  for (const char* call : {"pread", "stat"}) {
    PrivateFolder folder;
    Holder holder([&] { new RunLock(folder.path()); });
    const std::string before = read_file(folder / "run.lock");
    {
      const FileFaults disk("only=" + (folder / "run.lock") + "," + call + ":EIO");
      EXPECT_TRUE(has(refusal(folder.path()), "Input/output error")) << call;
    }
    EXPECT_EQ(read_file(folder / "run.lock"), before) << call;
  }
}

// Where the file system has no locks (NFS).

/// What this process says beside warnings.
struct InfoLog : CapturedLog {
  InfoLog() { set_log_level(LogLevel::info); }
  ~InfoLog() { set_log_level(LogLevel::warn); }
};

/// As NFS answers.
std::string without_locks(const PrivateFolder& folder) {
  return "only=" + folder.path() + ",lock:ENOLCK";
}

/// Processes that take the folder at the same moment, and keep it.
class Contenders {
 public:
  Contenders(int processes, const PrivateFolder& folder) {
    int start[2], end[2];
    if (::pipe(start) != 0 || ::pipe(end) != 0) fail<Error>("pipe: {}", errno_text());
    keeps_.reset(end[1]);
    for (int i = 0; i < processes; ++i) {
      const std::string said = said_ / std::to_string(i);
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::alarm(60);
        char byte = 0;
        ::close(start[1]), ::close(end[1]);
        set_file_faults(without_locks(folder));
        if (::read(start[0], &byte, 1) != 0) ::_exit(1);
        std::string text;
        try {
          new RunLock(folder.path());
        } catch (const Error& e) {
          text = e.what();
        }
        set_file_faults("");
        write(said + ".new", text);
        if (::rename((said + ".new").c_str(), said.c_str()) != 0) ::_exit(1);
        if (::read(end[0], &byte, 1) != 0) ::_exit(1);
        ::_exit(0);
      }
      pids_.push_back(pid);
    }
    for (int fd : {start[0], start[1], end[0]}) ::close(fd);
    for (size_t i = 0; i < pids_.size(); ++i) {
      const std::string said = said_ / std::to_string(i);
      EXPECT_TRUE(trireme::testing::eventually([&] { return std::filesystem::exists(said); }));
      texts_.push_back(read_file(said));
    }
  }
  ~Contenders() {
    keeps_.reset();
    for (pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }

  /// Those that have the folder.
  std::vector<pid_t> owners() const {
    std::vector<pid_t> found;
    for (size_t i = 0; i < pids_.size(); ++i)
      if (texts_[i].empty()) found.push_back(pids_[i]);
    return found;
  }
  std::vector<std::string> refusals() const {
    std::vector<std::string> found;
    for (const std::string& text : texts_)
      if (!text.empty()) found.push_back(text);
    return found;
  }

 private:
  PrivateFolder said_;
  UniqueFd keeps_;
  std::vector<pid_t> pids_;
  std::vector<std::string> texts_;
};

TEST(launch_run_lock, without_locks_of_two_that_start_at_once_one_runs_and_the_other_names_it) {
  for (int round = 0; round < (testing::kSanitized ? 4 : 20); ++round) {
    PrivateFolder folder;
    if (round % 2) write(folder / "run.lock", "");  // of one that died before it wrote its name
    const Contenders two(2, folder);
    ASSERT_EQ(two.owners().size(), 1u) << round;
    ASSERT_EQ(two.refusals().size(), 1u) << round;
    EXPECT_TRUE(has(two.refusals()[0], folder.path() + " is another job's: process " +
                                           std::to_string(two.owners()[0]) + " on " +
                                           own_process_id().host))
        << two.refusals()[0];
  }
}

TEST(launch_run_lock, without_locks_of_many_that_want_a_dead_ones_folder_at_once_one_gets_it) {
  for (int round = 0; round < (testing::kSanitized ? 3 : 10); ++round) {
    PrivateFolder folder;
    {
      Holder holder([&] {
        set_file_faults(without_locks(folder));
        new RunLock(folder.path());
      });
    }
    ASSERT_TRUE(std::filesystem::exists(folder / "run.lock"));
    const Contenders many(4, folder);
    EXPECT_EQ(many.owners().size(), 1u) << round;
  }
}

TEST(launch_run_lock, without_locks_a_living_owner_is_refused_a_dead_one_replaced) {
  PrivateFolder folder;
  const FileFaults here(without_locks(folder));
  Holder holder([&] { new RunLock(folder.path()); });
  EXPECT_TRUE(has(refusal(folder.path()), "process " + std::to_string(holder.pid())));
  EXPECT_TRUE(has(refusal(folder.path(), {.take_over = true}), "trains in it"));
  holder.kill();
  {
    const InfoLog log;
    const RunLock lock(folder.path());
    EXPECT_EQ(log.with("was left locked by process").size(), 1u);
    EXPECT_EQ(read_lock(read_file(folder / "run.lock"), "run.lock")->process, own_process_id());
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(launch_run_lock, without_locks_another_hosts_owner_is_dead_when_it_is_silent_for_long) {
  const LockOwner there{
      {"node7", "another-boot", "pid:[1]", 4711, 12}, "2026-11-22T16:50:07Z", true};
  PrivateFolder folder;
  const FileFaults here(without_locks(folder));
  write(folder / "run.lock", lock_text(there));
  const InfoLog log;
  const auto start = Clock::now();
  EXPECT_EQ(refusal(folder.path(), {.silence = milliseconds(200)}), "");
  EXPECT_GE(Clock::now() - start, milliseconds(200));
  EXPECT_EQ(log.with("to see whether process 4711 on node7").size(), 1u);
  EXPECT_EQ(log.with("as it has long been silent").size(), 1u);
  // The user need not wait.
  write(folder / "run.lock", lock_text(there));
  EXPECT_EQ(refusal(folder.path(), {.take_over = true, .silence = std::chrono::hours(1)}), "");
}

TEST(launch_run_lock, without_locks_another_hosts_owner_lives_that_renews_its_file_or_cannot) {
  LockOwner there{{"node7", "another-boot", "pid:[1]", 4711, 12}, "2026-11-22T16:50:07Z", true};
  PrivateFolder folder;
  const FileFaults here(without_locks(folder));
  CapturedLog log;
  write(folder / "run.lock", lock_text(there));
  std::atomic<bool> ends = false;
  std::thread renews([&] {
    while (!ends) {
      file_calls::touch(folder / "run.lock");
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  const std::string text = refusal(folder.path(), {.silence = std::chrono::seconds(30)});
  ends = true;
  renews.join();
  EXPECT_TRUE(has(text, "process 4711 on node7") && has(text, "trains in it")) << text;
  // It had a lock of the kernel, which is not seen from here: silence says nothing.
  there.renews = false;
  write(folder / "run.lock", lock_text(there));
  EXPECT_TRUE(has(refusal(folder.path(), {.silence = milliseconds(1)}), "--take-over"));
  EXPECT_EQ(read_file(folder / "run.lock"), lock_text(there));
}

TEST(launch_run_lock, without_locks_a_program_that_is_executed_goes_on_renewing_the_file) {
  PrivateFolder folder;
  LockOwner self = this_owner();
  self.renews = true;
  write(folder / "run.lock", lock_text(self));  // as before an exec
  const auto first = std::filesystem::last_write_time(folder / "run.lock");
  {
    const RunLock adopted =
        RunLock::adopt(folder.path(), ::open((folder / "run.lock").c_str(), O_RDONLY | O_CLOEXEC),
                       {.beat = milliseconds(1)});
    EXPECT_TRUE(trireme::testing::eventually(
        [&] { return std::filesystem::last_write_time(folder / "run.lock") != first; }));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "run.lock"));
}

TEST(launch_run_lock, killed_at_any_call_without_locks_it_is_taken_again_and_leaves_nothing) {
  for (int number = 1; number < 60; ++number) {
    PrivateFolder folder;
    const std::string end = trireme::testing::end_of_child(
        without_locks(folder) + "," + std::to_string(number) + ":kill-after",
        [&] { RunLock lock(folder.path()); });
    const FileFaults here(without_locks(folder));
    CapturedLog log;
    {
      const RunLock lock(folder.path(), {.silence = milliseconds(50)});
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << number;
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << number;
    if (end.empty()) return;  // it made fewer calls
    ASSERT_EQ(end, "killed") << number;
  }
  FAIL() << "taking a folder makes fewer than 60 calls";
}

}  // namespace
}  // namespace trireme::launch::run_lock_test
