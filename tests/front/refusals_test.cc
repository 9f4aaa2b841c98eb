// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/refusals.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/refusals.h"
#include "trireme/base/file.h"

namespace trireme::testing::refusals_test {
namespace {

using Sets = std::vector<std::string>;

Config dummy(Sets sets) {
  sets.push_back("data.type=dummy");
  return Config::from_text("c.json", R"({"train_micro_batch_size_per_gpu": 2})", sets);
}

/// All of them, a line each; "" where a start would be tried.
std::string refused(const Sets& sets, int ranks, bool built_in_model = true) {
  std::string text;
  for (const std::string& sentence : refusals_of(dummy(sets), ranks, built_in_model)) {
    EXPECT_EQ(std::count(sentence.begin(), sentence.end(), '\n'), 0) << sentence;
    text += (text.empty() ? "" : "\n") + sentence;
  }
  return text;
}

TEST(front_refusals, what_divides_is_started) {
  EXPECT_EQ(refused({}, 3), "");
  for (const char* tp : {"1", "2", "3", "6"})
    EXPECT_EQ(refused({std::string("parallelism.tp=") + tp, "model.vocab=259",
                       "parallelism.sequence_parallel=true"},
                      6),
              "")
        << tp;
  EXPECT_EQ(refused({"parallelism.pp=3", "gradient_accumulation_steps=3"}, 6), "");
}

TEST(front_refusals, heads_and_parts_that_do_not_divide_are_one_sentence) {
  EXPECT_EQ(refused({"parallelism.tp=4"}, 8),
            "parallelism.tp 4 (--set): 6 query heads do not divide among 4 tensor-parallel ranks: "
            "choose a number of ranks that divides 6");
  EXPECT_TRUE(has(refused({"parallelism.tp=300", "model.heads=300", "model.width=300"}, 300),
                  "a vocabulary of 256 in granules of 1 gives 256 parts for 300 ranks"));
  EXPECT_TRUE(
      has(refused({"parallelism.tp=3", "model.context=2", "parallelism.sequence_parallel=true"}, 3),
          "a context of 2 in granules of 1 gives 2 parts for 3 ranks"));
  EXPECT_EQ(refused({"parallelism.tp=4"}, 8, false), "") << "a program brings its own model";
}

TEST(front_refusals, pipelines_that_cannot_be_are_one_sentence) {
  const std::string begins =
      "parallelism.pp 2 (--set), and gradient_accumulation_steps are its micro-batches: ";
  EXPECT_EQ(refused({"parallelism.pp=2", "model.layers=1"}, 2),
            begins +
                "2 stages, and the model has 1 blocks: each stage needs one, so use fewer "
                "ranks or stages");
  for (const Sets& more :
       {Sets{"parallelism.stages=[6]"}, Sets{"parallelism.stages=[1,2]"},
        Sets{"parallelism.schedule=zb_h2"},
        Sets{"model.tied_head=false", "parallelism.schedule=dualpipe_v"},
        Sets{"parallelism.schedule=gpipe", "parallelism.virtual_stages=2"},
        Sets{"parallelism.virtual_stages=4", "parallelism.schedule=interleaved_1f1b"}}) {
    Sets sets = more;
    sets.push_back("parallelism.pp=2");
    EXPECT_TRUE(refused(sets, 2).starts_with(begins)) << more.back() << ": " << refused(sets, 2);
  }
}

TEST(front_refusals, tables_that_cannot_be_are_one_sentence) {
  const PrivateFolder folder;
  const std::string file = folder / "t.csv", begins = "parallelism.schedule_file (--set): ";
  const auto of_file = [&](const std::string& path, int ranks, const Sets& more = {}) {
    Sets sets = {"parallelism.schedule_file=" + path, "gradient_accumulation_steps=2",
                 "parallelism.pp=" + std::to_string(ranks)};
    sets.insert(sets.end(), more.begin(), more.end());
    return refused(sets, ranks);
  };
  EXPECT_EQ(of_file(file, 2), begins + "there is no file " + file);
  EXPECT_EQ(of_file(folder.path(), 2), begins + folder.path() + " is not a file");
  write_file_atomic(file, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(of_file(file, 2), "");
  EXPECT_EQ(of_file(file, 2, {"training.reproducible=true"}), "");
  const std::string p = "parallelism.pp ";
  EXPECT_EQ(of_file(file, 3),
            p + "3 (--set), and gradient_accumulation_steps are its micro-batches: " + file +
                " is for 2 ranks, one a line, and the pipeline has 3");
  EXPECT_EQ(of_file(file, 2, {"gradient_accumulation_steps=3"}),
            p + "2 (--set), and gradient_accumulation_steps are its micro-batches: " + file +
                " is for 2 micro-batches, and a step has 3");
  EXPECT_TRUE(has(of_file(file, 2, {"model.layers=1"}), "2 stages, and the model has 1 blocks"));
  write_file_atomic(file, "0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1F1,1B0\n");
  EXPECT_TRUE(of_file(file, 2).starts_with(begins + file + ": rank 1, action 4 (1F1)"))
      << of_file(file, 2);
}

TEST(front_refusals, leaves_are_counted_over_ranks_that_read_different_samples) {
  const Sets reproducible = {"training.reproducible=true", "parallelism.pp=3", "model.layers=6"};
  EXPECT_EQ(refused({reproducible[0], reproducible[1], "gradient_accumulation_steps=4"}, 6), "");
  EXPECT_EQ(refused({reproducible[0], reproducible[1], "gradient_accumulation_steps=3"}, 6),
            "training.reproducible: 6 leaves on 2 ranks; both must be powers of two");
  EXPECT_EQ(refused({reproducible[0]}, 3),
            "training.reproducible: 3 leaves on 3 ranks; both must be powers of two");
}

}  // namespace
}  // namespace trireme::testing::refusals_test
