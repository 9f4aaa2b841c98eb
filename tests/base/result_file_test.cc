// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/result_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"

namespace trireme::testing::result_file_test {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return std::string(e.kind()) + ": " + e.what();
  }
  return "";
}

size_t names_in(const PrivateFolder& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder.path()), {}));
}

TEST(base_result_file, a_new_file_and_a_regular_one_are_made_and_replaced) {
  PrivateFolder folder;
  const std::string file = folder / "out.json";
  for (const char* text : {"first", "2"}) {
    check_result_file(file);
    write_result_file(file, text);
    EXPECT_EQ(read_file(file), text);
  }
  EXPECT_EQ(names_in(folder), 1u);
}

TEST(base_result_file, a_device_stays_one_and_is_written) {
  for (const char* device : {"/dev/null", "/dev/full"}) {
    EXPECT_EQ(refusal([&] { check_result_file(device); }), "");
    const std::string said = refusal([&] { write_result_file(device, "bytes"); });
    EXPECT_EQ(said, device == std::string("/dev/null")
                        ? ""
                        : "ResourceError: cannot write /dev/full: No space left on device");
    EXPECT_TRUE(fs::is_character_file(device));
  }
}

TEST(base_result_file, what_another_user_put_where_everybody_may_write_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  constexpr uid_t kOther = 65534;
  PrivateFolder folder;
  const std::string shared = folder / "tmp", victim = folder / "victim",
                    link = shared + "/out.json", pipe = shared + "/pipe";
  fs::create_directory(shared);
  write_file_atomic(victim, "mine");
  fs::create_symlink(victim, link);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  for (const std::string& planted : {link, pipe})
    ASSERT_EQ(::lchown(planted.c_str(), kOther, kOther), 0);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  for (const std::string& planted : {link, pipe})
    for (const bool only_checked : {true, false}) {
      const std::string said = refusal(
          [&] { only_checked ? check_result_file(planted) : write_result_file(planted, "bytes"); });
      EXPECT_TRUE(said.starts_with("ResourceError: cannot write " + planted + ": another user has"))
          << said;
    }
  EXPECT_EQ(read_file(victim), "mine");
  // In a folder of one's own, and one's own link there, are nobody else's.
  ASSERT_EQ(::lchown(link.c_str(), ::geteuid(), ::getegid()), 0);
  write_result_file(link, "bytes");
  EXPECT_EQ(read_file(victim), "bytes");
  ASSERT_EQ(::lchown(link.c_str(), kOther, kOther), 0);
  ASSERT_EQ(::chmod(shared.c_str(), 0755), 0);
  write_result_file(link, "more");
  EXPECT_EQ(read_file(victim), "more");
}

TEST(base_result_file, a_pipe_stays_one_and_its_reader_has_the_bytes) {
  PrivateFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  check_result_file(pipe);  // without a reader it would wait, were it opened
  std::string read;
  std::thread reader([&] {
    const UniqueFd fd(::open(pipe.c_str(), O_RDONLY | O_CLOEXEC));
    char buffer[64];
    for (ssize_t n; (n = ::read(fd.get(), buffer, sizeof buffer)) > 0;)
      read.append(buffer, static_cast<size_t>(n));
  });
  write_result_file(pipe, "bytes");
  reader.join();
  EXPECT_EQ(read, "bytes");
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(names_in(folder), 1u);
}

TEST(base_result_file, a_link_stays_one_and_its_target_is_replaced) {
  PrivateFolder folder;
  fs::create_directory(folder / "away");
  fs::create_symlink("away/target", folder / "inner");  // leads to nothing yet
  fs::create_symlink(folder / "inner", folder / "link");
  for (const char* text : {"first", "second"}) {
    check_result_file(folder / "link");
    write_result_file(folder / "link", text);
    EXPECT_EQ(read_file(folder / "away/target"), text);
    EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "inner"));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder / "away/target")));
  }
  fs::create_symlink("/dev/null", folder / "nothing");
  write_result_file(folder / "nothing", "bytes");
  EXPECT_TRUE(fs::is_symlink(folder / "nothing") && fs::is_character_file("/dev/null"));
  fs::create_symlink("round", folder / "round");
  EXPECT_NE(refusal([&] { check_result_file(folder / "round"); }).find("symbolic links"),
            std::string::npos);
}

// "command >file" and "--json /dev/stdout": what was written before stays.
TEST(base_result_file, a_descriptor_by_its_name_is_written_where_it_stands) {
  PrivateFolder folder;
  const std::string file = folder / "out";
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(fd.get(), "before ", 7), 7);
  for (const char* under : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::string name = under + std::to_string(fd.get());
    check_result_file(name);
    write_result_file(name, "bytes ");
  }
  fs::create_symlink("/dev/fd/" + std::to_string(fd.get()), folder / "link");
  write_result_file(folder / "link", "end");
  EXPECT_EQ(read_file(file), "before bytes bytes end");
  const UniqueFd reads(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_NE(refusal([&] { check_result_file("/dev/fd/" + std::to_string(reads.get())); }), "");
}

TEST(base_result_file, what_cannot_be_written_is_found_before_there_is_a_result) {
  PrivateFolder folder;
  for (const auto& call : {std::function<void(const std::string&)>(check_result_file),
                           std::function<void(const std::string&)>(
                               [](const std::string& path) { write_result_file(path, "x"); })}) {
    EXPECT_NE(refusal([&] { call(folder / "none/x"); }).find("No such file or directory"),
              std::string::npos);
    EXPECT_EQ(refusal([&] { call(folder.path()); }),
              "UsageError: " + folder.path() + " is a folder: name a file to write");
  }
  EXPECT_EQ(names_in(folder), 0u);
}

}  // namespace
}  // namespace trireme::testing::result_file_test
