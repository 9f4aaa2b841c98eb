// SPDX-License-Identifier: Apache-2.0
// What a save, a prune, a resume and the taking of a run folder change or read goes through
// base/file/file_calls.h, where tests number it and make it fail.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/house/source_lines.h"

namespace trireme::file_calls_house_test {
namespace {

using testing::Exception;
using testing::expect_only_in;
using testing::lines_where;
using testing::sources_in;

const std::vector<Exception> kExceptions = {
    {"trireme/base/file.cc", "a private temporary folder goes away"},
    {"trireme/checkpoint/load/verify.cc", "the boot's number, of /proc"},
    {"trireme/checkpoint/steps/run_folder/saver_lock.cc", "which locks this process has, of /proc"},
    {"trireme/checkpoint/save/snapshot.cc", "memory, not a file"},
    {"trireme/checkpoint/steps/large_pages.cc", "memory, not a file"},
    {"trireme/checkpoint/steps/snapshot/held_snapshot.cc", "memory, not a file"},
    {"trireme/checkpoint/steps/snapshot/handover.cc", "a socket of the launcher's"},
    {"trireme/checkpoint/steps/snapshot/part_memory.cc", "memory, not a file"},
    {"trireme/front/run_folder.cc", "whether a metrics file is ours: its first lines"},
};

bool makes_a_file_call(const std::string& code) {
  static const std::regex call(
      R"((^|[^\w:])::(open|openat|p?readv?2?|p?writev?|preadv2|fsync|fdatasync|syncfs|rename|renameat2?|link|unlink|unlinkat|mkdir|mkdirat|rmdir|stat|lstat|fstat|truncate|ftruncate|fallocate|posix_fallocate|mmap|opendir|readdir|flock|statvfs|fstatvfs|utimensat|copy_file_range|sendfile)\()"),
      stream(R"(\b(std::)?(basic_)?[io]?fstream\b)"),
      library(
          R"(\b(fs|std::filesystem)::(create_director\w+|remove\w*|rename|copy\w*|resize_file|permissions|create_\w*link|last_write_time)\()"),
      c(R"(\bstd::(fopen|freopen|rename)\()"), ours(R"(file_calls::\w+\()");
  const std::string others = std::regex_replace(code, ours, "seam(");
  return std::regex_search(others, call) || std::regex_search(others, stream) ||
         std::regex_search(others, library) || std::regex_search(others, c);
}

TEST(house_file_calls, the_search_finds_what_goes_round_the_seam) {
  for (const char* line :
       {"  const int fd = ::open(path.c_str(), O_RDONLY);", "if (::preadv2(fd, &to, 1, 0, 0) < 0)",
        "std::ifstream file(path);", "fs::create_directories(path, error);",
        "std::filesystem::remove_all(path_, ignored);", "  ::rmdir(p.c_str());",
        "std::rename(a, b);", "while (::pwrite(fd, p, n, at) < 0)"})
    EXPECT_EQ(lines_where(line, makes_a_file_call).size(), 1u) << line;
  for (const char* line :
       {"file_calls::open(path, O_RDONLY)", "void DirectBlocks::read(const Piece& piece) const {",
        "void OpenedStep::rename(const std::string& from) {", "// ::open() is not called here",
        "fs::absolute(path)", "opened.open(files);"})
    EXPECT_TRUE(lines_where(line, makes_a_file_call).empty()) << line;
}

TEST(house_file_calls, saves_and_resumes_make_theirs_where_tests_number_them) {
  std::vector<std::string> paths = sources_in("trireme/checkpoint");
  for (const char* path :
       {"trireme/base/file.cc", "trireme/base/file/folder.cc", "trireme/base/file/lock_file.cc",
        "trireme/front/run_folder.cc", "trireme/launch/run_lock.cc", "trireme/train/trainer.cc",
        "trireme/train/rank/train_rank.cc"})
    paths.push_back(path);
  expect_only_in(kExceptions, paths, makes_a_file_call,
                 "makes a file call of its own: take base/file/file_calls.h");
}

}  // namespace
}  // namespace trireme::file_calls_house_test
