// SPDX-License-Identifier: Apache-2.0
// What `trireme train` refuses of a layout before ranks start, `trireme summary` and `trireme
// config check` refuse by the same sentence.
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "tests/support/command.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"

namespace trireme::testing::refused_layouts_test {
namespace {

struct Layout {
  int ranks;
  Arguments sets;
  std::string part;  // of what is said
};

struct Said {
  int code;
  std::string out, err;
};

Said said(Arguments words, const Layout& layout, const std::string& config,
          const Arguments& more = {}) {
  words.insert(words.end(), {config, "--nproc-per-node", std::to_string(layout.ranks)});
  for (const std::string& set : layout.sets) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), more.begin(), more.end());
  Command command(trireme(words));
  const int code = command.finish();
  return {code, command.out, command.err};
}

TEST(cli_refused_layouts, summary_and_check_say_what_train_says) {
  const PrivateFolder folder;
  const std::string config = folder / "c.json", table = folder / "t.csv", wrong = folder / "w.csv";
  write_file_atomic(config, R"({"train_micro_batch_size_per_gpu": 2, "data": {"type": "dummy"}})");
  write_file_atomic(table, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  write_file_atomic(wrong, "0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1F1,1B0\n");
  const std::string pp = "parallelism.pp=2", tp = "parallelism.tp=2",
                    two = "gradient_accumulation_steps=2", file = "parallelism.schedule_file=";
  const std::vector<Layout> layouts = {
      // Degrees and batches.
      {3, {tp}, "parallelism.tp 2 (--set) does not divide 3 ranks"},
      {4, {"parallelism.pp=3", "gradient_accumulation_steps=3"}, "does not divide 4 ranks"},
      {8, {"parallelism.dp=2", tp}, "parallelism.dp 2 (--set)"},
      {4, {"zero_optimization.stage=2", "parallelism.dp_shard=3"}, "does not divide 4 ranks"},
      {4, {"train_batch_size=10"}, "train_batch_size"},
      {3, {"training.reproducible=true"}, "both must be powers of two"},
      {3, {"training.reproducible=true", "training.leaves=4"}, "training.leaves 4 (--set)"},
      // Layers.
      {8, {"parallelism.tp=4"}, "6 query heads do not divide among 4"},
      {3,
       {"parallelism.tp=3", "model.context=2", "parallelism.sequence_parallel=true"},
       "a context of 2"},
      {2, {tp, "model.type=mlp"}, "only gpt can be divided"},
      // Stages.
      {2, {pp, two, "model.layers=1"}, "the model has 1 blocks"},
      {2, {pp, two, "parallelism.stages=[1,2]"}, "parallelism.pp 2 (--set)"},
      {2, {pp, two, "parallelism.schedule=gpipe", "parallelism.virtual_stages=2"}, "gpipe"},
      {2, {pp, "parallelism.schedule=zb_h2"}, "zb_h2"},
      {2, {pp, two, file + (folder / "none.csv")}, "there is no file"},
      {2, {pp, two, file + wrong}, "rank 1, action 4 (1F1)"},
      {2, {pp, "gradient_accumulation_steps=3", file + table}, "is for 2 micro-batches"},
      // What does not compose.
      {2, {pp, two, "compression.type=powersgd"}, "codecs are for ranks with the same parameters"},
      {2, {tp, "optimizer.type=Adafactor"}, "its state is factored"},
      {2, {pp, two, "training.activation_memory_mb=5"}, "use recompute_every"},
      {2,
       {"optimizer.type=Lamb", "zero_optimization.stage=1",
        "zero_optimization.offload_optimizer.device=nvme",
        "zero_optimization.offload_optimizer.nvme_path=" + folder.path()},
       "with its state in a file each rank steps them at a different time"},
  };
  for (const Layout& layout : layouts) {
    const Said train = said({"train"}, layout, config, {"--run-dir", folder / "run"});
    EXPECT_EQ(train.code, 2) << layout.part << ": " << train.err;
    EXPECT_TRUE(has(train.err, layout.part)) << train.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "run")) << layout.part;
    const Said summary = said({"summary"}, layout, config);
    EXPECT_EQ(summary.code, 2) << layout.part;
    EXPECT_EQ(summary.err, train.err);
    EXPECT_EQ(summary.out, "");
    const Said check = said({"config", "check"}, layout, config);
    EXPECT_EQ(check.code, 2) << layout.part;
    EXPECT_TRUE(has(check.err, layout.part)) << check.err;
  }
}

TEST(cli_refused_layouts, what_train_would_start_is_summed_up) {
  const PrivateFolder folder;
  const std::string config = folder / "c.json";
  write_file_atomic(config, R"({"train_micro_batch_size_per_gpu": 2})");
  // Data are no matter of a layout: a summary may come before them.
  const Said here =
      said({"summary"}, {4, {"data.paths=[\"none\"]", "parallelism.tp=2"}, ""}, config);
  EXPECT_EQ(here.code, 0) << here.err;
}

}  // namespace
}  // namespace trireme::testing::refused_layouts_test
