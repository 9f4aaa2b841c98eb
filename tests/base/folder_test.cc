// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/file_log.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"

namespace trireme::testing::folder_test {
namespace {

// As a cluster's /scratch is, where each user makes a folder and nobody lists those of others.
TEST(base_folder, is_made_in_one_that_may_be_written_and_not_read) {
  const PrivateFolder outer;
  const std::string scratch = outer / "scratch";
  make_folders(scratch);
  ASSERT_EQ(::chmod(outer.path().c_str(), 0711), 0);
  // Its owner may not read it either, unless it is root: then a child is somebody else.
  ASSERT_EQ(::chmod(scratch.c_str(), 01333), 0);
  EXPECT_EQ(end_of_child("",
                         [&] {
                           const uid_t user = ::geteuid();
                           if (user == 0) check<Error>(::seteuid(65534) == 0, "not nobody");
                           check<Error>(
                               ::faccessat(AT_FDCWD, scratch.c_str(), R_OK, AT_EACCESS) != 0,
                               "it may be read");
                           make_folders(scratch + "/run/steps");
                           check<Error>(::seteuid(user) == 0, "not oneself again");
                         }),
            "");
  EXPECT_EQ(path_kind(scratch + "/run/steps"), PathKind::folder);
  ASSERT_EQ(::chmod(scratch.c_str(), 0700), 0);  // for who removes it
}

}  // namespace
}  // namespace trireme::testing::folder_test
