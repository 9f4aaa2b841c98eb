// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/file_log.h"
#include "trireme/shard/offload/offload_file.h"

// The file calls of states on disk, also those that io_uring makes, numbered and made to fail.
namespace trireme::testing::offload_file_calls_test {
namespace {

constexpr size_t kPage = OffloadFile::kAlignment;

std::vector<OffloadFileOptions> engines(const std::string& folder) {
  std::vector<OffloadFileOptions> found;
  for (auto engine : {OffloadEngine::automatic, OffloadEngine::threads})
    found.push_back({.folder = folder,
                     .block_size = kPage,
                     .queue_depth = 4,
                     .engine = engine,
                     .direct = false});
  return found;
}

/// Three blocks written, read and mapped.
void use(const OffloadFileOptions& options) {
  OffloadFile file(options, 3 * kPage);
  const auto from = offload_memory(3 * kPage), into = offload_memory(3 * kPage);
  std::memset(from.get(), 7, 3 * kPage);
  file.write(0, from, 3 * kPage).wait();
  file.read(0, into, 3 * kPage).wait();
  check<Error>(std::memcmp(from.get(), into.get(), 3 * kPage) == 0, "other bytes came back");
  check<Error>(file.holds(0, file.map(0, 3 * kPage).get(), 3 * kPage), "other bytes are mapped");
}

}  // namespace

TEST(shard_offload_file_calls, each_that_fails_is_told_with_the_folder_and_the_reason) {
  for (size_t way : {0, 1}) {
    PrivateFolder folder;
    const auto options = engines(folder.path())[way];
    const auto calls = calls_of(folder.path(), [&] { use(options); });
    size_t moved = 0;
    for (const LoggedCall& call : calls) moved += call.kind == "pwrite" || call.kind == "pread";
    EXPECT_EQ(moved, 6u);
    for (const LoggedCall& call : calls) {
      if (call.kind == "statvfs") continue;  // what is free is not known then, no more
      const FileFaults faults("only=" + folder.path() + "," + std::to_string(call.number) + ":EIO");
      std::string said;
      try {
        use(options);
      } catch (const ResourceError& e) {
        said = e.what();
      }
      EXPECT_NE(said.find(folder.path()), std::string::npos) << call.kind << said;
      EXPECT_NE(said.find("Input/output error"), std::string::npos) << call.kind << said;
    }
  }
}

TEST(shard_offload_file_calls, short_ones_are_continued) {
  for (size_t way : {0, 1}) {
    PrivateFolder folder;
    const auto options = engines(folder.path())[way];
    for (const LoggedCall& call : calls_of(folder.path(), [&] { use(options); })) {
      const FileFaults faults("only=" + folder.path() + "," + std::to_string(call.number) +
                              ":short");
      use(options);
    }
  }
}

TEST(shard_offload_file_calls, a_process_is_killed_before_or_after_each) {
  for (size_t way : {0, 1}) {
    PrivateFolder folder;
    const auto options = engines(folder.path())[way];
    for (const LoggedCall& call : calls_of(folder.path(), [&] { use(options); }))
      for (const char* fault : {"kill-before", "kill-after"})
        EXPECT_EQ(
            end_of_child("only=" + folder.path() + "," + std::to_string(call.number) + ":" + fault,
                         [&] { use(options); }),
            "killed")
            << call.kind << fault;
  }
}

}  // namespace trireme::testing::offload_file_calls_test
