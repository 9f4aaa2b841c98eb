// SPDX-License-Identifier: Apache-2.0
// `trireme train` where memory is short, as a user starts it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/faults/job.h"

namespace trireme::testing::balance_test {
namespace {

// One layer's output is 64 KiB a sample: 2,048 samples want some 400 MiB in a step.
constexpr const char* kWide = R"({
  "model": {"type": "mlp", "inputs": 16, "hidden": [16384], "outputs": 4},
  "data": {"type": "dummy"},
  "train_micro_batch_size_per_gpu": 2048,
  "balance": {"mode": "throughput"},
  "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
  "training": {"steps": 4},
  "checkpoint": {"at_end": false}
})";

/// Each process of it has 490 MiB.
Command limited(const std::string& folder, const Arguments& more = {}) {
  std::string words = "ulimit -d 500000; exec";  // KiB
  Arguments all = trireme({"train", write(folder + "/wide.json", kWide), "--nproc-per-node", "2",
                           "--run-dir", folder + "/run"});
  all.insert(all.end(), more.begin(), more.end());
  for (const std::string& word : all) words += " '" + word + "'";
  return Command({"/bin/sh", "-c", words});
}

TEST(faults_balance, ranks_that_find_no_memory_train_in_smaller_micro_batches) {
  PrivateFolder folder;
  Command train = limited(folder.path());
  ASSERT_EQ(train.finish(seconds(120)), 0) << train.err;
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_NE(train.err.find(fmt::format("rank {} ran out of memory at ", rank)), std::string::npos)
        << train.err;
  EXPECT_EQ(steps_in(folder / "run/metrics.jsonl"), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(json_lines(folder / "run/metrics.jsonl").back().at("event"), "done");
  EXPECT_TRUE(train.left_nothing());
}

TEST(faults_balance, without_back_off_it_is_one_sentence_that_says_what_to_do) {
  PrivateFolder folder;
  Command train = limited(folder.path(), {"--set", "balance.mode=none"});
  expect_refusal(train, 1,
                 {"ran out of memory at 2048 samples in step 1", "train_micro_batch_size_per_gpu",
                  "balance.mode=throughput", "allocate"},
                 seconds(120));
  EXPECT_EQ(train.err.find("frame #"), std::string::npos) << train.err;
}

}  // namespace
}  // namespace trireme::testing::balance_test
