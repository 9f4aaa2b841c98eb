// SPDX-License-Identifier: Apache-2.0
// A schedule as a file: written by one verb, taken by others.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/command.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"

namespace trireme::testing::schedule_file_test {
namespace {

constexpr const char* kSmall = R"({
  "model": {"type": "gpt", "layers": 4, "width": 32, "heads": 2, "context": 16},
  "data": {"type": "dummy"},
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "training": {"steps": 2},
  "parallelism": {"pp": 2, "schedule_file": "table.csv"}
})";

struct Folder {
  Folder() { write_file_atomic(config, kSmall); }
  /// In this folder, on two ranks.
  Command run(const std::string& verb, const Arguments& more = {}) const {
    Arguments words{verb, config, "--nproc-per-node", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return Command(trireme(words), {{}, folder.path()});
  }
  void write(const Arguments& more) const {
    Arguments words{"plan", "schedule", "--csv", "table.csv"};
    words.insert(words.end(), more.begin(), more.end());
    Command plan(trireme(words), {{}, folder.path()});
    ASSERT_EQ(plan.finish(), 0) << plan.err;
  }
  const PrivateFolder folder;
  const std::string config = folder / "small.json", table = folder / "table.csv";
};

TEST(cli_schedule_file, what_plan_writes_train_and_summary_take) {
  if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  const Folder f;
  for (const char* format : {"compute_only", "compute_comms"}) {
    f.write({"--name", "zb_v", "-p", "2", "-m", "4", "--format", format});
    Command summary = f.run("summary");
    ASSERT_EQ(summary.finish(), 0) << summary.err;
    EXPECT_TRUE(has(summary.out, "embedding, 0; 3, head")) << summary.out;
    Command train = f.run("train", {"--run-dir", std::string("run-") + format});
    ASSERT_EQ(train.finish(), 0) << train.err;
    EXPECT_TRUE(has(train.err, "a pipeline of 2 ranks by the table table.csv")) << train.err;
  }
}

TEST(cli_schedule_file, what_cannot_be_taken_is_one_sentence_before_a_folder_is_made) {
  const Folder f;
  const auto refused = [&](const std::string& what) {
    for (const char* verb : {"train", "summary"}) {
      Command command = f.run(verb);
      EXPECT_EQ(command.finish(), 2) << verb << ": " << what;
      EXPECT_EQ(std::count(command.err.begin(), command.err.end(), '\n'), 1) << command.err;
      EXPECT_TRUE(has(command.err, what)) << command.err;
    }
    EXPECT_FALSE(std::filesystem::exists(f.folder / "runs"));
  };
  refused("parallelism.schedule_file (" + f.config + ":");
  refused("there is no file table.csv");
  std::filesystem::create_directory(f.table);
  refused("table.csv is not a file");
  std::filesystem::remove(f.table);
  f.write({"--name", "1f1b", "-p", "4", "-m", "4"});
  refused("table.csv is for 4 ranks, one a line, and the pipeline has 2");
  f.write({"--name", "1f1b", "-p", "2", "-m", "8"});
  refused("table.csv is for 8 micro-batches, and a step has 4");
  write_file_atomic(f.table, "0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n");
  refused("table.csv: the backward (B or I) of stage 0, micro-batch 1 is in no list");
  write_file_atomic(f.table, "forward then backward");
  refused("table.csv: row 1, column 1: 'forward then backward' is no action");
  write_file_atomic(f.table, "");
  std::filesystem::resize_file(f.table, uint64_t{1} << 30);
  refused("table.csv is larger than 67108864 bytes");
}

}  // namespace
}  // namespace trireme::testing::schedule_file_test
