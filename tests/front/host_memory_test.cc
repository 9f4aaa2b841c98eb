// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/sanitized.h"
#include "trireme/base/file.h"

namespace trireme::host_memory_test {
namespace {

TEST(front_host_memory, this_machine_has_more_than_it_has_free) {
  const HostMemory host = host_memory();
  EXPECT_GT(host.available, 0);
  EXPECT_GE(host.capacity, host.available);
}

TEST(front_host_memory, swap_counts_as_capacity) {
  PrivateFolder root;
  std::filesystem::create_directory(root / "proc");
  std::ofstream(root / "proc/meminfo") << "MemTotal:       1000 kB\nMemFree:  10 kB\n"
                                          "MemAvailable:    500 kB\nSwapTotal:      24 kB\n";
  const HostMemory host = host_memory(root.path());
  EXPECT_EQ(host.capacity, 1024 * 1024);
  EXPECT_EQ(host.available, 500 * 1024);
  EXPECT_EQ(host.limit, "this machine");
}

TEST(front_host_memory, a_limit_of_the_process_is_named) {
  if (testing::kSanitized) GTEST_SKIP() << "the sanitizer's shadow lies above any such limit";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{int64_t{3} << 30, int64_t{3} << 30};
    ::setrlimit(RLIMIT_AS, &limit);
    const HostMemory host = host_memory();
    ::_exit(host.process_limit == int64_t{3} << 30 && host.process_limit_name == "ulimit -v" ? 0
                                                                                             : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace trireme::host_memory_test
