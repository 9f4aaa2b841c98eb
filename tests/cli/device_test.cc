// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/faults/job.h"
#include "tests/support/refusals.h"

// A device that is not there: said once, before anything starts, wherever a configuration is read.
namespace trireme::testing::cli_device_test {
namespace {

namespace fs = std::filesystem;

class cli_device : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
    write(folder_ / "tiny.json", kTinyMlp);
  }
  Command start(Arguments words) const {
    return Command(trireme(std::move(words)), {{}, folder_.path()});
  }
  PrivateFolder folder_;
};

const char* const kNobodys = "device=privateuseone";
const Arguments kWhy{
    "--set: device 'privateuseone': no library has added a device "
    "'privateuseone' to LibTorch"};

TEST_F(cli_device, that_is_not_there_is_refused_before_ranks_and_folders) {
  Command job =
      start({"train", "tiny.json", "--run-dir", "run", "--nproc-per-node", "2", "--set", kNobodys});
  expect_refusal(job, 2, kWhy);
  EXPECT_FALSE(has(job.err, "[rank")) << job.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  Command cuda = start({"train", "tiny.json", "--run-dir", "run", "--set", "device=cuda:100"});
  expect_refusal(cuda, 2, {"device 'cuda:100'"});
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(cli_device, that_is_not_there_is_what_a_check_says_of_this_machine) {
  for (const Arguments& more : {Arguments{}, Arguments{"--nproc-per-node", "2"}}) {
    Arguments words{"config", "check", "tiny.json", "--set", kNobodys};
    words.insert(words.end(), more.begin(), more.end());
    Command check = start(words);
    expect_refusal(check, 2, kWhy);
  }
  Command elsewhere = start({"config", "check", "tiny.json", "--world", "4", "--set", kNobodys});
  EXPECT_EQ(elsewhere.finish(), 0) << elsewhere.err;
}

TEST_F(cli_device, that_is_not_there_is_not_measured_and_the_summary_says_that_train_refuses_it) {
  Command measured =
      start({"summary", "tiny.json", "--measure", "--nproc-per-node", "2", "--set", kNobodys});
  expect_refusal(measured, 2, kWhy);
  Command plan = start({"summary", "tiny.json", "--set", kNobodys});
  EXPECT_EQ(plan.finish(), 0) << plan.err;
  EXPECT_TRUE(has(plan.out, "`trireme train` refuses it: " + kWhy[0])) << plan.out;
}

}  // namespace
}  // namespace trireme::testing::cli_device_test
