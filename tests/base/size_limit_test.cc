// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/size_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/file_log.h"
#include "tests/support/file_size_limit.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"
#include "trireme/base/output_file.h"

// `ulimit -f`: the kernel ends a process that writes on beyond it.
namespace size_limit_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr size_t kLimit = 10'000;

/// How a child ended that may write no larger files.
std::string end_within_limit(const std::function<void()>& body) {
  return end_of_child("", [&] {
    const FileSizeLimit limit(kLimit);
    body();
  });
}

std::string refusal_of(const std::string& path, size_t bytes) {
  return fmt::format(
      "ResourceError: cannot write {}: it would have {} bytes, and the limit on file sizes is {} "
      "(ulimit -f)",
      path, bytes, kLimit);
}

TEST(base_size_limit, a_file_that_fits_is_written_and_a_longer_one_is_refused_and_leaves_the_old) {
  PrivateFolder folder;
  const std::string path = folder / "file", whole(kLimit, 'x');
  EXPECT_EQ(end_within_limit([&] { write_file_atomic(path, whole); }), "");
  EXPECT_EQ(end_within_limit([&] { write_file_atomic(path, whole + "y"); }),
            refusal_of(path, kLimit + 1));
  EXPECT_EQ(read_file(path), whole);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(base_size_limit, an_output_file_is_refused_where_it_would_grow_beyond) {
  PrivateFolder folder;
  const std::string path = folder / "file", half(kLimit / 2, 'x');
  EXPECT_EQ(end_within_limit([&] {
              OutputFile file(path);
              file.write(half.data(), half.size());
              file.write(half.data(), half.size());
              file.finish();
            }),
            "");
  EXPECT_EQ(read_file(path), half + half);
  // A write that begins within the limit would be cut short, and the next one would be the end.
  EXPECT_EQ(end_within_limit([&] {
              OutputFile file(path, OutputFile::Others::write_too);
              file.write_at(kLimit - 10, half.data(), 11);
            }),
            refusal_of(path, kLimit + 1));
  EXPECT_EQ(read_file(path), half + half);
}

TEST(base_size_limit, a_log_that_has_reached_it_stays_as_it_is_and_the_process_goes_on) {
  PrivateFolder folder;
  const std::string path = folder / "stderr";
  EXPECT_EQ(end_within_limit([&] {
              UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
              const int before = ::dup(STDERR_FILENO);
              ::dup2(log.get(), STDERR_FILENO);
              for (int i = 0; i < 300; ++i) log_error("{}", std::string(50, 'x'));
              ::dup2(before, STDERR_FILENO);
              ::close(before);
            }),
            "");
  const std::string text = read_file(path);
  EXPECT_GT(text.size(), kLimit - 100);
  EXPECT_LE(text.size(), kLimit);
  EXPECT_EQ(text.back(), '\n') << "whole lines";
}

TEST(base_size_limit, what_has_no_size_may_always_grow) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd from(ends[0]), to(ends[1]);
  EXPECT_EQ(end_within_limit([&] {
              check<Error>(may_grow(to.get(), 10 * kLimit), "a pipe");
              check<Error>(may_grow(-1, 10 * kLimit), "nothing");
            }),
            "");
}

}  // namespace
}  // namespace size_limit_test
