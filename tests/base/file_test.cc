// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "trireme/base/error.h"

namespace file_test {

using namespace trireme;

namespace {

// Arguments of a call are evaluated in any order: g++ asked for errno's text before the rename.
TEST(base_file, a_failed_rename_is_told_with_its_own_errno_and_not_the_one_before) {
  PrivateFolder folder;
  const std::string taken = folder.path() + "/taken";
  std::filesystem::create_directories(taken + "/by a folder");
  errno = EDOM;
  try {
    write_file_atomic(taken, "bytes");
    FAIL() << "a folder was replaced by a file";
  } catch (const ResourceError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("cannot rename"), std::string::npos) << text;
    EXPECT_NE(text.find(": Is a directory"), std::string::npos) << text;
  }
}

}  // namespace

}  // namespace file_test
