// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_faults.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"

namespace trireme::generation_claims_test {
namespace {

namespace fs = std::filesystem;

class checkpoint_steps_generation_claims : public ::testing::Test {
 protected:
  ~checkpoint_steps_generation_claims() override {
    set_file_faults("");
    ::unsetenv(GenerationFence::kPathVariable);
    ::unsetenv(GenerationFence::kNumberVariable);
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_ / "run"), fs::directory_iterator()));
  }
  std::string why_not(const GenerationFence& fence) const {
    try {
      fence.check();
    } catch (const ResourceError& error) {
      return error.what();
    }
    return "";
  }

  PrivateFolder folder_{"trireme-test"};
  const std::string path_ = folder_ / "run/run.generation";
  const GenerationClaims claims_{path_};
};

TEST_F(checkpoint_steps_generation_claims, of_many_that_claim_at_once_one_wins_and_all_hear_who) {
  for (int64_t number = 0; number < 20; ++number) {
    std::vector<std::string> heard(8);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < heard.size(); ++i)
      threads.emplace_back(
          [&, i] { heard[i] = claims_.claim(number, "claim " + std::to_string(i)); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set<std::string>(heard.begin(), heard.end()).size(), 1u);
    EXPECT_EQ(claims_.claim(number, "late"), heard[0]);
    EXPECT_EQ(claims_.newest(), number);
  }
  EXPECT_EQ(files(), 17u) << "claims of long ago are removed, and no drafts are left";
}

TEST_F(checkpoint_steps_generation_claims, a_generation_is_over_when_it_or_a_later_one_is_claimed) {
  EXPECT_EQ(claims_.newest(), -1);
  EXPECT_EQ(why_not({path_, 3}), "") << "there is not even a folder";
  claims_.claim(2, "x");
  EXPECT_EQ(why_not({path_, 3}), "");
  EXPECT_NE(why_not({path_, 2}).find("run.generation.2 says so"), std::string::npos);
  claims_.claim(40, "x");
  EXPECT_NE(why_not({path_, 3}).find("other hosts of the job go on without this one"),
            std::string::npos);
  EXPECT_EQ(why_not({path_, 41}), "");
  EXPECT_EQ(why_not({}), "") << "a job whose nodes do not come and go has no claims";
  // Names that are no claim.
  write_file_atomic(path_ + ".99x", "");
  write_file_atomic(path_ + ".-99", "");
  write_file_atomic(path_ + "99", "");
  EXPECT_EQ(claims_.newest(), 40);
}

TEST_F(checkpoint_steps_generation_claims, what_cannot_be_looked_up_is_not_published) {
  claims_.claim(2, "x");
  set_file_faults("opendir:EIO");
  EXPECT_NE(why_not({path_, 3}).find("cannot list"), std::string::npos);
}

TEST_F(checkpoint_steps_generation_claims, a_step_of_a_generation_that_is_over_is_not_published) {
  const std::string run = folder_ / "run";
  {
    StepDraft draft(run, 5, StepDraft::kPatience, {path_, 3});
    write_file_atomic(draft.folder() + "/file", "whole");
    claims_.claim(3, "x");  // while it is written
    EXPECT_THROW(draft.publish(), ResourceError);
  }
  EXPECT_FALSE(fs::exists(run + "/step-00000005"));
  EXPECT_FALSE(fs::exists(run + "/latest"));
  EXPECT_EQ(files(), 1u) << "nothing of it is left";
  {
    // It stood still after the step was shown: `latest` is left to those that go on.
    StepDraft draft(run, 5, StepDraft::kPatience, {path_, 4});
    draft.publish();
    claims_.claim(4, "x");
    EXPECT_THROW(draft.settle(2), ResourceError);
  }
  EXPECT_FALSE(fs::exists(run + "/latest"));
  StepDraft next(run, 6, StepDraft::kPatience, {path_, 5});
  next.publish();
  next.settle(2);
  EXPECT_EQ(read_file(run + "/latest"), "step-00000006\n");
}

TEST_F(checkpoint_steps_generation_claims, savers_have_it_from_their_launcher) {
  EXPECT_EQ(GenerationFence::of_environment().path, "");
  ::setenv(GenerationFence::kPathVariable, path_.c_str(), 1);
  EXPECT_THROW(GenerationFence::of_environment(), UsageError);
  for (const char* bad : {"", "x", "-1", "7x", "99999999999999999999"}) {
    ::setenv(GenerationFence::kNumberVariable, bad, 1);
    EXPECT_THROW(GenerationFence::of_environment(), UsageError) << bad;
  }
  ::setenv(GenerationFence::kNumberVariable, "7", 1);
  EXPECT_EQ(GenerationFence::of_environment().number, 7);
  claims_.claim(7, "x");
  StepDraft draft(folder_ / "run", 1);
  EXPECT_THROW(draft.publish(), ResourceError);
}

}  // namespace
}  // namespace trireme::generation_claims_test
