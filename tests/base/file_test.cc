// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/forked.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"

namespace file_test {

using namespace trireme;
using trireme::testing::ChildEnd;
using trireme::testing::ForkedChild;

namespace {

// Arguments of a call are evaluated in any order: g++ asked for errno's text before the rename.
TEST(base_file, a_failed_rename_is_told_with_its_own_errno_and_not_the_one_before) {
  PrivateFolder folder;
  const std::string taken = folder.path() + "/taken";
  std::filesystem::create_directories(taken + "/by a folder");
  errno = EDOM;
  try {
    write_file_atomic(taken, "bytes");
    FAIL() << "a folder was replaced by a file";
  } catch (const ResourceError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("cannot rename"), std::string::npos) << text;
    EXPECT_NE(text.find(": Is a directory"), std::string::npos) << text;
  }
}

/// What `call` throws in a child, which has to say so within 5 s.
std::string refused_soon(const std::function<void()>& call) {
  PrivateFolder said;
  const std::string file = said / "said";
  ForkedChild child(ChildEnd::exit_at_once, [&]() -> std::string {
    try {
      call();
    } catch (const ResourceError& e) {
      std::ofstream(file) << e.what();
      return "";
    }
    return "nothing was refused";
  });
  const std::string wrong = child.ended(std::chrono::seconds(5));
  return wrong.empty() ? read_file(file) : wrong;
}

TEST(base_file, a_named_pipe_in_place_of_a_file_is_refused_and_not_waited_for) {
  PrivateFolder folder;
  const std::string pipe = folder / "latest", link = folder / "config.json";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, link);
  for (const std::string& path : {pipe, link})
    EXPECT_EQ(refused_soon([&] { read_file(path); }),
              path + " is a named pipe and not a regular file: remove it, or name another file");
  EXPECT_NE(refused_soon([&] { fsync_path(pipe); }).find("cannot sync"), std::string::npos);
  // With a writer that says nothing, too.
  const UniqueFd writer(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(static_cast<bool>(writer));
  EXPECT_NE(refused_soon([&] { read_file(pipe); }).find("named pipe"), std::string::npos);
}

TEST(base_file, a_device_that_never_ends_is_refused) {
  PrivateFolder folder;
  std::filesystem::create_symlink("/dev/zero", folder / "latest");
  EXPECT_EQ(refused_soon([&] { read_file(folder / "latest"); }),
            folder / "latest" +
                " is a device and not a regular file: remove it, or name another "
                "file");
}

TEST(base_file, what_a_process_was_given_by_descriptor_may_be_a_pipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  std::thread writer([&] {  // what comes is waited for
    EXPECT_EQ(::write(in.get(), "text", 4), 4);
    in.reset();
  });
  EXPECT_EQ(read_file("/dev/fd/" + std::to_string(out.get())), "text");
  writer.join();
  EXPECT_EQ(read_file("/proc/self/fd/" + std::to_string(out.get())), "");
}

TEST(base_file, what_has_the_temporarys_name_is_removed_and_not_written_to) {
  PrivateFolder folder;
  const std::string path = folder / "latest",
                    temporary = path + ".tmp." + std::to_string(::gettid()),
                    precious = folder / "precious";
  const std::vector<std::function<void()>> plants{
      [&] { std::filesystem::create_symlink(precious, temporary); },
      [&] { std::filesystem::create_symlink("nowhere", temporary); },
      [&] { std::filesystem::create_hard_link(precious, temporary); },
      [&] { std::ofstream(temporary) << "what a process left that had this number"; },
      [&] { ASSERT_EQ(::mkfifo(temporary.c_str(), 0600), 0); }};
  for (size_t i = 0; i < plants.size(); ++i) {
    std::ofstream(precious) << "text";
    plants[i]();
    write_file_atomic(path, "step-" + std::to_string(i));
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path))) << i;
    EXPECT_EQ(read_file(path), "step-" + std::to_string(i));
    EXPECT_EQ(read_file(precious), "text") << i;
    EXPECT_FALSE(std::filesystem::exists(folder / "nowhere"));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(temporary))) << i;
  }
}

TEST(base_file, threads_that_write_one_file_leave_it_whole) {
  PrivateFolder folder;
  constexpr size_t kBytes = 300'000;
  std::vector<std::thread> writers;
  std::atomic<int> failed{0};
  for (char letter : {'a', 'b', 'c'})
    writers.emplace_back([&, letter] {
      for (int i = 0; i < 10; ++i) try {
          write_file_atomic(folder / "file", std::string(kBytes, letter));
        } catch (const Error&) {
          ++failed;
        }
    });
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(failed, 0);
  const std::string found = read_file(folder / "file");
  EXPECT_EQ(found, std::string(kBytes, found.at(0)));
}

}  // namespace

}  // namespace file_test
