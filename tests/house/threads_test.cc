// SPDX-License-Identifier: Apache-2.0
// Folders that are left out under ThreadSanitizer (tests/CMakeLists.txt) start no thread, and their
// tests do not either.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::threads_test {
namespace {

namespace fs = std::filesystem;

TEST(house_threads, folders_without_threads_are_the_ones_that_ThreadSanitizer_does_not_see) {
  const fs::path root = trireme::testing::source_path();
  const std::string list = read_file((root / "tests/CMakeLists.txt").string());
  std::smatch found;
  ASSERT_TRUE(std::regex_search(list, found, std::regex(R"(set\(single_threaded ([^)]+)\))")));
  const std::regex starts(R"(std::(j?thread|async)\b|pthread_create|run_threads|ThreadPool)");
  std::istringstream folders(found[1]);
  int files = 0;
  for (std::string folder; folders >> folder;)
    for (const char* half : {"trireme", "tests"}) {
      if (!fs::exists(root / half / folder)) continue;
      for (const auto& entry : fs::recursive_directory_iterator(root / half / folder)) {
        const auto kind = entry.path().extension();
        if (kind != ".h" && kind != ".cc") continue;
        ++files;
        EXPECT_FALSE(std::regex_search(read_file(entry.path().string()), starts))
            << entry.path() << " starts threads: take " << folder << " off the list";
      }
    }
  EXPECT_GT(files, 100);
}

}  // namespace
}  // namespace trireme::threads_test
