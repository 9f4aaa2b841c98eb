// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/support/file_log.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"

namespace output_file_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr size_t kPage = OutputFile::kPage;

/// Bytes by chance in memory that begins with a page.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : memory_(static_cast<char*>(::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage))) {
    std::minstd_rand random(7);
    for (size_t i = 0; i < bytes; ++i) memory_.get()[i] = static_cast<char>(random());
  }
  char* begin() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(char* p) const { ::free(p); }
  };
  std::unique_ptr<char, Free> memory_;
};

constexpr size_t kBytes = 1'000'003;

/// What a file holds into which the bytes behind `at` were written, there.
std::string written(const std::string& path, const Pages& pages, size_t at, size_t shift = 0) {
  ::unlink(path.c_str());
  OutputFile file(path);
  file.go_direct();
  const std::string head(at, 'h');
  file.write(head.data(), head.size());
  file.write(pages.begin() + at % kPage + shift, kBytes);
  EXPECT_EQ(file.written(), at + kBytes);
  file.finish();
  return read_file(path);
}

std::string expected(const Pages& pages, size_t at, size_t shift = 0) {
  return std::string(at, 'h') + std::string(pages.begin() + at % kPage + shift, kBytes);
}

bool has_direct_writes(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return ::fcntl(fd.get(), F_SETFL, O_DIRECT) == 0;
}

}  // namespace

TEST(base_output_file, what_goes_direct_is_the_same_bytes_wherever_it_begins) {
  PrivateFolder folder;
  const Pages pages(kBytes + 2 * kPage);
  for (size_t at : {size_t{0}, size_t{1}, size_t{511}, size_t{4095}, size_t{4096}, size_t{12345}})
    for (size_t shift : {size_t{0}, size_t{64}})
      EXPECT_EQ(written(folder / "file", pages, at, shift), expected(pages, at, shift))
          << at << " " << shift;
}

TEST(base_output_file, whole_pages_are_one_write_and_the_rest_of_the_first_and_last_are_others) {
  PrivateFolder folder;
  const Pages pages(kBytes + 2 * kPage);
  const auto calls = calls_of(folder.path(), [&] { written(folder / "file", pages, 12345); });
  std::vector<std::pair<int64_t, int64_t>> writes;  // offset, bytes
  for (const LoggedCall& call : calls)
    if (call.kind == "pwrite") writes.emplace_back(call.offset, call.result);
  if (!has_direct_writes(folder / "file")) {
    EXPECT_EQ(writes.size(), 2u);
    return;
  }
  const int64_t page = kPage, first = 16384, end = 12345 + static_cast<int64_t>(kBytes);
  EXPECT_EQ(writes, (std::vector<std::pair<int64_t, int64_t>>{{0, 12345},
                                                              {first, (end - first) / page * page},
                                                              {12345, first - 12345},
                                                              {end / page * page, end % page}}));
}

TEST(base_output_file,
     a_file_system_that_refuses_direct_writes_or_cuts_them_short_gets_plain_ones) {
  PrivateFolder folder;
  const Pages pages(kBytes + 2 * kPage);
  written(folder / "file", pages, 12345);
  if (!has_direct_writes(folder / "file")) return;  // the first test has seen what becomes of it
  for (const LoggedCall& call :
       calls_of(folder.path(), [&] { written(folder / "file", pages, 12345); })) {
    if (call.kind != "pwrite" || call.offset != 16384) continue;
    for (const char* fault : {"EINVAL", "short"}) {
      const FileFaults faults(fmt::format("only={},{}:{}", folder.path(), call.number, fault));
      EXPECT_EQ(written(folder / "file", pages, 12345), expected(pages, 12345)) << fault;
    }
    return;
  }
  FAIL() << "nothing went direct";
}

// As ranks do it that write one file: whoever comes second destroys nothing, and makes nothing
// shorter.
TEST(base_output_file, room_that_is_reserved_changes_no_byte_that_is_there) {
  PrivateFolder folder;
  const Pages pages(kBytes);
  const std::string bytes(pages.begin(), kBytes);
  for (const bool last_comes_first : {false, true}) {
    const std::string path = folder / (last_comes_first ? "a" : "b");
    const size_t half = kBytes / 2;
    for (const size_t at :
         last_comes_first ? std::vector{half, size_t{0}} : std::vector{size_t{0}, half}) {
      OutputFile file(path, OutputFile::Others::write_too);
      file.reserve(at, at == 0 ? half : kBytes - half);
      EXPECT_EQ(file.written(), 0u);
      file.write_at(at, bytes.data() + at, at == 0 ? half : kBytes - half);
      file.finish();
    }
    EXPECT_EQ(read_file(path), bytes);
    OutputFile file(path, OutputFile::Others::write_too);
    file.reserve(0, kBytes);
    file.finish();
    EXPECT_EQ(read_file(path), bytes);
  }
}

TEST(base_output_file,
     a_disk_without_room_says_so_and_one_that_reserves_none_is_written_all_the_same) {
  PrivateFolder folder;
  const Pages pages(kBytes);
  const auto reserved_and_written = [&](const char* fault) {
    const FileFaults faults(fmt::format("only={},allocate:{}", folder.path(), fault));
    ::unlink((folder / "file").c_str());
    try {
      OutputFile file(folder / "file");
      file.reserve(0, kBytes);
      file.write(pages.begin(), kBytes);
      file.finish();
    } catch (const ResourceError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* fault : {"EOPNOTSUPP", "EINVAL"}) {
    EXPECT_EQ(reserved_and_written(fault), "") << fault;
    EXPECT_EQ(read_file(folder / "file"), std::string(pages.begin(), kBytes));
  }
  EXPECT_EQ(reserved_and_written("ENOSPC"),
            fmt::format("cannot write {} (there is no room for {} bytes): No space "
                        "left on device",
                        folder / "file", kBytes));
  EXPECT_EQ(read_file(folder / "file"), "");
}

}  // namespace output_file_test
