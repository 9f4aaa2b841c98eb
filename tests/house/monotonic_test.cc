// SPDX-License-Identifier: Apache-2.0
// Who is in a job, and how long one waits for the others, never hangs on a wall clock: somebody may
// set it while the job runs.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::monotonic_test {
namespace {

namespace fs = std::filesystem;

TEST(house_monotonic, launchers_and_stores_wait_by_clocks_that_nobody_sets) {
  const std::regex wall(R"(system_clock|CLOCK_REALTIME|wall_ns|\bgettimeofday\b|[^_\w]::time\()");
  ASSERT_TRUE(std::regex_search(std::string("  ::time(nullptr)"), wall));
  int files = 0;
  const fs::path root = trireme::testing::source_path("/trireme");
  for (const char* folder : {"launch/nodes", "launch/membership", "rendezvous", "store", "net"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file()) continue;
      if (entry.path().filename() == "compare_nodes.cc") continue;  // to say that clocks differ
      ++files;
      EXPECT_FALSE(std::regex_search(read_file(entry.path().string()), wall)) << entry.path();
    }
  EXPECT_GT(files, 100);
}

}  // namespace
}  // namespace trireme::monotonic_test
