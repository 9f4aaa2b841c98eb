// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/checkpoint/test_state.h"
#include "trireme/base/error.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/writer.h"

namespace faults_test {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

// Body in a forked child (file work only); its wait status.
template <class Body>
int in_child(const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

size_t hidden_files(const std::string& run) {
  size_t n = 0;
  for (const auto& item : fs::directory_iterator(run))
    n += item.path().filename().string().front() == '.';
  return n;
}

struct Failpoints {
  explicit Failpoints(const std::string& text) { set_failpoints(text); }
  ~Failpoints() { set_failpoints(""); }
};

}  // namespace

TEST(checkpoint_faults, killed_at_any_write_the_one_before_is_whole_and_the_next_save_cleans_up) {
  int kills = 0;
  for (int visit = 1; visit < 40; ++visit) {
    PrivateFolder run;
    save(run.path(), 100, {.keep = 1});
    const int status = in_child([&] {
      set_failpoints("checkpoint.write@" + std::to_string(visit) + "=kill");
      save(run.path(), 200, {.keep = 1});
      return 0;
    });
    if (!killed(status)) {  // past the last write
      EXPECT_EQ(status, 0);
      EXPECT_EQ(load_mark(run.path()), 200);
      break;
    }
    ++kills;
    EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{100}));
    EXPECT_EQ(load_mark(run.path()), 100);
    EXPECT_EQ(hidden_files(run.path()), 1u);
    save(run.path(), 200, {.keep = 1});
    EXPECT_EQ(hidden_files(run.path()), 0u);
    EXPECT_EQ(load_mark(run.path()), 200);
  }
  EXPECT_GE(kills, 3);  // two files, whose small tensors leave together, and the index
}

TEST(checkpoint_faults, killed_before_publishing_the_one_before_is_loaded) {
  PrivateFolder run;
  save(run.path(), 100, {.keep = 1});
  EXPECT_TRUE(killed(in_child([&] {
    set_failpoints("checkpoint.before_publish=kill");
    save(run.path(), 200, {.keep = 1});
    return 0;
  })));
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{100}));
  EXPECT_EQ(load_mark(run.path()), 100);
  save(run.path(), 300, {.keep = 1});
  EXPECT_EQ(hidden_files(run.path()), 0u);
  EXPECT_EQ(load_mark(run.path()), 300);
}

TEST(checkpoint_faults, killed_after_publishing_both_are_whole) {
  PrivateFolder run;
  save(run.path(), 100, {.keep = 1});
  EXPECT_TRUE(killed(in_child([&] {
    set_failpoints("checkpoint.after_publish=kill");
    save(run.path(), 200, {.keep = 1});
    return 0;
  })));
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{100, 200}));
  EXPECT_EQ(load_mark(run / "step-00000200"), 200);
  EXPECT_EQ(load_mark(run.path()), 100);  // what `latest` says
  save(run.path(), 200, {.keep = 1});     // the run resumed from 100 comes to 200 again
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{200}));
  EXPECT_EQ(load_mark(run.path()), 200);
}

TEST(checkpoint_faults, killed_while_a_step_is_saved_again_the_first_is_whole) {
  PrivateFolder run;
  save(run.path(), 100, {.keep = 1});
  for (const char* where :
       {"checkpoint.write@3", "checkpoint.before_publish", "checkpoint.after_publish"}) {
    EXPECT_TRUE(killed(in_child([&] {
      set_failpoints(std::string(where) + "=kill");
      save(run.path(), 100, {.keep = 1});
      return 0;
    }))) << where;
    EXPECT_EQ(load_mark(run.path()), 100) << where;
  }
}

TEST(checkpoint_faults,
     a_full_disk_or_a_failing_one_leaves_nothing_visible_and_says_what_is_needed) {
  for (int error : {ENOSPC, EIO, EDQUOT})
    for (int visit : {1, 2, 3}) {
      PrivateFolder run;
      save(run.path(), 100);
      Failpoints armed("checkpoint.write@" + std::to_string(visit) + "=error(" +
                       std::to_string(error) + ")");
      const std::string text = message_of<ResourceError>([&] { save(run.path(), 200); });
      EXPECT_TRUE(contains(text, "step 200") && contains(text, "needs")) << text;
      EXPECT_EQ(hidden_files(run.path()), 0u);
      EXPECT_EQ(load_mark(run.path()), 100);
      EXPECT_EQ(slurp(run / "latest"), "step-00000100\n");
    }
}

TEST(checkpoint_faults, a_rename_that_fails_leaves_the_one_before) {
  PrivateFolder run;
  save(run.path(), 100, {.keep = 1});
  Failpoints armed("checkpoint.before_publish=error(" + std::to_string(EIO) + ")");
  EXPECT_TRUE(contains(message_of<ResourceError>([&] { save(run.path(), 200, {.keep = 1}); }),
                       "cannot publish"));
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{100}));
  EXPECT_EQ(hidden_files(run.path()), 0u);
}

TEST(checkpoint_faults, when_latest_cannot_be_replaced_the_old_ones_stay) {
  PrivateFolder run;
  save(run.path(), 100, {.keep = 1});
  {
    Failpoints armed("file.write=error(" + std::to_string(ENOSPC) + ")");
    EXPECT_THROW(save(run.path(), 200, {.keep = 1}), ResourceError);
  }
  EXPECT_EQ(list_steps(run.path()), (std::vector<int64_t>{100, 200}));
  EXPECT_EQ(load_mark(run.path()), 100);
}

TEST(checkpoint_faults, two_savers_in_one_run_folder_are_refused) {
  PrivateFolder run;
  UniqueFd other(::open(run.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_TRUE(contains(message_of<ResourceError>([&] { save(run.path(), 100); }),
                       "another saver of this process"));
  other.reset();
  save(run.path(), 100);
  EXPECT_EQ(load_mark(run.path()), 100);
}

TEST(checkpoint_faults, a_run_folder_that_cannot_be_made_is_a_resource_error) {
  PrivateFolder folder;
  spill(folder / "file", "x");
  EXPECT_TRUE(
      contains(message_of<ResourceError>([&] { save(folder / "file/run", 1); }), "run folder"));
}

// A real file system of 288 KiB, in a mount namespace of the child's own.
TEST(checkpoint_faults, a_really_full_disk_keeps_the_checkpoint_before) {
  PrivateFolder folder;
  constexpr int kCannotMount = 77;
  const int status = in_child([&] {
    const int uid = static_cast<int>(::getuid()), gid = static_cast<int>(::getgid());
    if (::unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return kCannotMount;
    if (uid != 0) {
      spill("/proc/self/setgroups", "deny");
      spill("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
      spill("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
    }
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kCannotMount;
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=288k") != 0) return kCannotMount;
    const std::string run = folder / "run";
    auto big = [](double mark) {
      TestState state(mark);
      state.put("model.big",
                at::full({30'000}, mark,
                         at::kFloat));  // 120 kB: two fit alone, but not beside the ballast
      return state;
    };
    TestState first = big(1), second = big(2), loaded = big(-1);
    save_step(run, 1, std::ref(first), {.keep = 2});
    try {
      spill(folder / "ballast", std::string(60'000, 'x'));
      save_step(run, 2, std::ref(second), {.keep = 2});
      return 1;
    } catch (const ResourceError& e) {
      if (!contains(e.what(), "No space left")) return 2;
    }
    if (hidden_files(run) != 0 || list_steps(run) != std::vector<int64_t>{1}) return 3;
    load_step(run, std::ref(loaded));
    if (!loaded.same_as(first)) return 4;
    fs::remove(folder / "ballast");  // space came back: the next save succeeds
    save_step(run, 2, std::ref(second), {.keep = 1});
    load_step(run, std::ref(loaded));
    return loaded.same_as(second) ? 0 : 5;
  });
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotMount) GTEST_SKIP() << "may not mount a tmpfs here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace faults_test
