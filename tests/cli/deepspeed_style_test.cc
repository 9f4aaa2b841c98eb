// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/paths.h"

namespace trireme::testing::deepspeed_style_test {
namespace {

bool built() {
  return std::filesystem::exists(trireme::testing::build_path("/tests/deepspeed_style"));
}

Arguments example(const Arguments& more, int ranks) {
  Arguments words = trireme({"run", "--nproc-per-node", std::to_string(ranks),
                             trireme::testing::build_path("/tests/deepspeed_style")});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(cli_deepspeed_style, the_example_learns_on_two_ranks_with_fp16_and_zero_2) {
  if (!built()) GTEST_SKIP() << "this build has no LibTorch, and so not the example";
  Command command(example({}, 2));
  ASSERT_EQ(command.finish(std::chrono::seconds(60)), 0) << command.out << command.err;
  EXPECT_NE(command.out.find("2 ranks, loss "), std::string::npos) << command.out;
}

TEST(cli_deepspeed_style, a_ds_config_of_ones_own_is_read_and_its_mistakes_are_told) {
  if (!built()) GTEST_SKIP() << "this build has no LibTorch, and so not the example";
  PrivateFolder folder;
  const std::string file = folder / "ds_config.json";
  write_file_atomic(file, R"({"train_batch_size": 64, "bf16": {"enabled": true},
    "optimizer": {"type": "Adam", "params": {"lr": 0.001}}, "zero_optimization": {"stage": 1}})");
  Command right(example({file}, 2));
  EXPECT_EQ(right.finish(std::chrono::seconds(60)), 0) << right.out << right.err;

  write_file_atomic(file, R"({"train_batch_size": 64, "zero_optimization": {"stagee": 1}})");
  Command wrong(example({file}, 1));
  EXPECT_NE(wrong.finish(std::chrono::seconds(60)), 0);
  EXPECT_NE((wrong.out + wrong.err).find("zero_optimization.stage"), std::string::npos)
      << wrong.out << wrong.err;
}

}  // namespace
}  // namespace trireme::testing::deepspeed_style_test
