// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/file/file_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/store/file/file_log.h"

namespace file_store_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::detail::FileRecord;
using Type = FileRecord::Type;

// file-store-v1.bin is a store's file as version 1 was when it landed: attempt 2 of job "job", a
// world of two; rank 0 came and left, a second connection was lost with a will.
namespace {

const std::string kFixture =
    read_file(trireme::testing::source_path("/tests/formats/file-store-v1.bin"));

const FileRecord kRecords[] = {
    {Type::begin, "job", "0123456789abcdef0123456789abcdef", 2, 2, 0},
    {Type::enter, "", "node1", 0, 0, 4711},
    {Type::put, "join", "ok", 0, 0, 0},
    {Type::put, "bytes", std::string("\0\xff\n", 3), 0, 0, 0},
    {Type::enter, "", "node2", 1, trireme::detail::kNoRank, 4712},
    {Type::will, "lost/1", "yes", 1, 0, 0},
    {Type::erase, "join", "", 0, 0, 0},
    {Type::lost, "", "", 1, 0, 0},
    {Type::leave, "", "", 0, 0, 0},
};

}  // namespace

TEST(formats_file_store, version_1_is_written_byte_for_byte) {
  ASSERT_EQ(trireme::detail::kFileLogVersion, 1)
      << "a new version: keep this fixture, add one of the new";
  std::string written = trireme::detail::file_start();
  for (const auto& record : kRecords) written += trireme::detail::encode(record);
  EXPECT_EQ(written, kFixture);
}

TEST(formats_file_store, version_1_is_read) {
  ASSERT_TRUE(trireme::detail::check_file_start(kFixture, "the fixture"));
  std::string_view rest = std::string_view(kFixture).substr(trireme::detail::kFileStartBytes);
  trireme::detail::FileState state;
  size_t taken = 0;
  for (const auto& record : kRecords) {
    auto read = trireme::detail::decode_record(rest, &taken);
    ASSERT_EQ(read, record);
    state.apply(*read);
    rest.remove_prefix(taken);
  }
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(state.find("bytes"), std::string("\0\xff\n", 3));
  EXPECT_EQ(state.find("join"), std::nullopt);
  EXPECT_EQ(state.find("lost/1"), "yes");
}

TEST(formats_file_store, a_file_of_version_1_is_recognised_as_left_behind) {
  PrivateFolder folder;
  const auto path = folder / "store";
  write_file_atomic(path, kFixture);
  ::chmod(path.c_str(), 0600);
  try {
    FileStore::join(path, {"job", 2, 2, 0}, Deadline::after(10s));
    FAIL() << "entered";
  } catch (const UsageError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("process 4712 on node2"), std::string::npos) << what;
  }
  EXPECT_EQ(read_file(path), kFixture);
}

}  // namespace file_store_test
