// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/run_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"

namespace trireme::launch::run_lock_test {
namespace {

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

}  // namespace
}  // namespace trireme::launch::run_lock_test
