// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"

namespace trireme::testing::ldd_test {
namespace {

TEST(faults_ldd, the_command_links_no_torch_and_no_BLAS) {
  Command ldd({"ldd", trireme_program()});
  ASSERT_EQ(ldd.finish(), 0) << ldd.err;
  EXPECT_TRUE(holds_all(ldd.out, {"libc.so.6"}));
  EXPECT_EQ(ldd.out.find("not found"), std::string::npos) << ldd.out;
  for (const char* library : {"torch", "libc10", "blas", "libmpi", "libgomp"})
    EXPECT_EQ(ldd.out.find(library), std::string::npos) << library << " in\n" << ldd.out;
}

TEST(faults_ldd, the_worker_links_torch) {
  Command ldd({"ldd", worker_program()});
  ASSERT_EQ(ldd.finish(), 0) << ldd.err;
  EXPECT_TRUE(holds_all(ldd.out, {"libtorch_cpu"}));
  EXPECT_EQ(ldd.out.find("not found"), std::string::npos) << ldd.out;
}

TEST(faults_ldd, help_answers_for_every_verb) {
  for (const char* verb :
       {"train", "generate", "run", "bench", "config", "job", "doctor", "version"}) {
    Command help(trireme({verb, "--help"}));
    EXPECT_EQ(help.finish(), 0) << verb << ": " << help.err;
    EXPECT_TRUE(holds_all(help.out, {"Examples", std::string("trireme ") + verb})) << verb;
  }
}

}  // namespace
}  // namespace trireme::testing::ldd_test
