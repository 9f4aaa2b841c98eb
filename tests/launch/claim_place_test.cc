// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/claim_place.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::launch::claim_place_test {
namespace {

using Claim = ClaimPlace::Claim;

TEST(launch_claim_place, files_say_who_was_first_and_what_the_next_job_begins_with) {
  const PrivateFolder folder("trireme-test");
  RunOptions options;
  EXPECT_EQ(claim_place(options), nullptr) << "c10d without a shared file";
  options.claims = folder / "shared/job";
  const auto one = claim_place(options), other = claim_place(options);
  EXPECT_EQ(one->first_free(), 0);
  EXPECT_EQ(one->claim("job", 4, {5, "a"}), (Claim{5, "a"}));
  EXPECT_EQ(other->claim("job", 4, {6, "b"}), (Claim{5, "a"}));
  EXPECT_EQ(one->claim("job", 4, {5, "a"}), (Claim{5, "a"})) << "asked again";
  EXPECT_EQ(other->first_free(), 5);
  // As it has been since its first version.
  EXPECT_EQ(read_file(folder / "shared/job.4"),
            R"({"keeper":"a","next":5,"version":"trireme claim 1"})");
}

TEST(launch_claim_place, another_programs_words_are_no_claim) {
  const PrivateFolder folder("trireme-test");
  RunOptions options;
  options.claims = folder / "job";
  write_file_atomic(folder / "job.4", "mine");
  EXPECT_THROW(claim_place(options)->claim("job", 4, {5, "a"}), Corrupt);
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string(R"({"version":"trireme claim 1"})"),
        std::string(R"({"keeper":"a","next":5,"version":"trireme claim 2"})"),
        std::string(R"({"keeper":"a","next":-1,"version":"trireme claim 1"})"),
        std::string(R"({"keeper":7,"next":5,"version":"trireme claim 1"})"),
        R"({"keeper":")" + std::string(2000, 'x') + R"(","next":5,"version":"trireme claim 1"})"})
    EXPECT_THROW(read_claim(bad), Corrupt) << bad.substr(0, 80);
}

TEST(launch_claim_place, a_file_that_not_all_nodes_can_name_is_refused) {
  const auto options = [](const char* nodes, const char* conf) {
    return parse_run_options({"--nnodes", nodes, "--rdzv-backend=c10d", "--rdzv-endpoint=h",
                              std::string("--rdzv-conf=") + conf, "program"});
  };
  EXPECT_EQ(options("1:2", "shared_file=/shared/job").claims, "/shared/job");
  for (const char* bad : {"shared_file=job", "shared_file=", "shared_file=/shared/"})
    EXPECT_THROW(options("1:2", bad), UsageError) << bad;
  const RunOptions fixed = options("2", "shared_file=/shared/job");
  EXPECT_EQ(fixed.claims, "");
  ASSERT_FALSE(fixed.warnings.empty());
  EXPECT_EQ(fixed.warnings[0], "--rdzv-conf: shared_file has no effect here");
}

}  // namespace
}  // namespace trireme::launch::claim_place_test
