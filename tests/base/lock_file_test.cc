// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/lock_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/captured_log.h"
#include "tests/support/file_log.h"
#include "tests/support/forked.h"
#include "tests/support/sanitized.h"

// A lock made of a file that names its holder. What savers and launchers do with it is tested with
// them.
namespace lock_file_test {

using namespace trireme;
using namespace trireme::testing;
using namespace std::chrono_literals;

namespace {

std::string name_itself(const std::string& text) { return text; }

std::unique_ptr<LockFile> try_make(const std::string& path, const std::string& text,
                                   Duration beat = 10s) {
  return LockFile::try_make(path, text, beat, name_itself);
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(base_lock_file, one_that_is_there_is_not_made_again_and_goes_with_its_holder) {
  PrivateFolder folder;
  {
    const auto first = try_make(folder / "lock", "first");
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(try_make(folder / "lock", "second"), nullptr);
    EXPECT_EQ(read_file(folder / "lock"), "first");
    EXPECT_NO_THROW(first->check_ours());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(base_lock_file, a_text_that_has_changed_is_not_taken_away) {
  PrivateFolder folder;
  write(folder / "lock", "living");
  LockFile::take_away(folder / "lock", "dead", 10ms);
  EXPECT_EQ(read_file(folder / "lock"), "living");
  LockFile::take_away(folder / "lock", "living", 10ms);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(base_lock_file, whose_file_is_anothers_says_so_once_and_leaves_it) {
  PrivateFolder folder;
  CapturedLog log;
  auto file = try_make(folder / "lock", "ours", 1ms);
  std::filesystem::remove(folder / "lock");
  write(folder / "lock", "theirs");
  EXPECT_THROW(file->check_ours(), ResourceError);
  EXPECT_TRUE(eventually([&] { return !log.with("theirs took it for dead").empty(); }));
  std::filesystem::last_write_time(folder / "lock", {});
  file.reset();
  EXPECT_EQ(read_file(folder / "lock"), "theirs");
  EXPECT_EQ(std::filesystem::last_write_time(folder / "lock"), std::filesystem::file_time_type());
}

TEST(base_lock_file, a_forked_child_that_drops_its_copy_neither_waits_nor_removes_the_file) {
  PrivateFolder folder;
  auto file = try_make(folder / "lock", "parent");
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    file.reset();
    return std::string();
  });
  EXPECT_EQ(child.ended(), "");
  EXPECT_EQ(read_file(folder / "lock"), "parent");
}

/// Processes that all want the file at the same moment; those that got it keep it.
int takers(int processes, const std::string& path, const std::string& dead) {
  int start[2], said[2], end[2];
  for (auto* ends : {start, said, end})
    if (::pipe(ends) != 0) fail<Error>("pipe: {}", errno_text());
  std::vector<pid_t> pids;
  for (int i = 0; i < processes; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);
      char byte = 0;
      ::close(start[1]), ::close(end[1]);
      if (::read(start[0], &byte, 1) != 0) ::_exit(1);
      try {
        LockFile::take_away(path, dead, 10s);
        static auto file = try_make(path, "taker " + std::to_string(i));
        byte = file ? 'y' : 'n';
      } catch (const Error& e) {
        write(path + ".error", e.what());
        byte = 'e';
      }
      if (::write(said[1], &byte, 1) != 1 || ::read(end[0], &byte, 1) != 0) ::_exit(1);
      ::_exit(0);
    }
    pids.push_back(pid);
  }
  for (int fd : {start[0], start[1], said[1], end[0]}) ::close(fd);
  int takers = 0;
  char byte = 0;
  for (int i = 0; i < processes; ++i) {
    const bool told = ::read(said[0], &byte, 1) == 1 && byte != 'e';
    EXPECT_TRUE(told);
    takers += byte == 'y';
  }
  ::close(said[0]), ::close(end[1]);
  for (pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  return takers;
}

TEST(base_lock_file, of_many_that_take_a_dead_ones_place_at_once_one_gets_it) {
  PrivateFolder folder;
  // They are processes of one thread each, which a sanitizer makes slow to fork.
  for (int round = 0; round < (kSanitized ? 5 : 30); ++round) {
    write(folder / "lock", "dead");
    EXPECT_EQ(takers(5, folder / "lock", "dead"), 1) << round;
    std::filesystem::remove(folder / "lock");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(base_lock_file, killed_at_any_call_a_taker_keeps_nobody_away) {
  for (int number = 1; number < 40; ++number) {
    PrivateFolder folder;
    const std::string path = folder / "lock";
    write(path, "dead");
    const auto take = [&] {
      LockFile::take_away(path, "dead", 50ms);
      try_make(path, "first");
    };
    const std::string end =
        end_of_child("only=" + folder.path() + "," + std::to_string(number) + ":kill-after", take);
    std::unique_ptr<LockFile> file;
    for (int attempt = 0; attempt < 4 && !file; ++attempt) {
      if (const auto seen = LockFile::look(path)) LockFile::take_away(path, seen->text, 50ms);
      file = try_make(path, "second");
    }
    ASSERT_NE(file, nullptr) << number;
    EXPECT_EQ(read_file(path), "second") << number;
    if (end.empty()) return;  // it made fewer calls
    ASSERT_EQ(end, "killed") << number;
  }
  FAIL() << "taking over makes fewer than 40 calls";
}

}  // namespace
}  // namespace lock_file_test
