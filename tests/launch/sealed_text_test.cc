// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/sealed_text.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch::sealed_text_test {
namespace {

TEST(launch_sealed_text, every_process_reads_the_whole_of_it) {
  const std::string text(100'000, 'x');
  UniqueFd fd = seal_text("test", text);
  // They share the place in the file, as workers of one launcher do.
  for (int child = 0; child < 2; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(take_sealed_text(fd.release()) == text ? 0 : 1);
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(take_sealed_text(fd.release()), text);
}

TEST(launch_sealed_text, nobody_can_change_it) {
  const UniqueFd fd = seal_text("test", "text");
  EXPECT_LT(::pwrite(fd.get(), "T", 1, 0), 0);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
}

TEST(launch_sealed_text, another_descriptor_is_refused) {
  EXPECT_THROW(take_sealed_text(987), UsageError);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_THROW(take_sealed_text(ends[0]), UsageError);
}

}  // namespace
}  // namespace trireme::launch::sealed_text_test
