// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "tests/train/same_steps.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/train/trainer.h"

namespace resume_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Config ten_steps(const std::string& corpus, Sets sets = {}) {
  sets.insert(sets.begin(), {"training.steps=10", "training.eval_batches=2"});
  return tiny_gpt(corpus, sets);
}

TrainOptions into(const std::string& run_dir, std::optional<std::string> resume = {}) {
  TrainOptions options;
  options.run_dir = run_dir;
  options.resume = std::move(resume);
  return options;
}

/// A run on n thread ranks, rank 1's result (rank 0's for n = 1); `stop_after` > 0: somebody asks
/// to stop in that step.
TrainResult run_on(int n, const Config& config, TrainOptions options, int stop_after = 0) {
  std::vector<TrainResult> results(static_cast<size_t>(n));
  run_threads(
      n,
      [&](Group g) {
        TrainOptions mine = options;
        int looks = 0;
        if (stop_after > 0)
          mine.stop_asked = [&looks, stop_after] { return ++looks == stop_after; };
        results[static_cast<size_t>(g.rank())] = train(config, g, mine);
      },
      std::chrono::seconds(60));
  return results[static_cast<size_t>(n > 1)];
}

/// Model, optimizer and everything else of the last checkpoint, as bytes.
std::string bytes_of(const std::string& run_dir) {
  const std::string step = find_checkpoint(run_dir);
  return read_file(step + "/model.safetensors") + read_file(step + "/state.safetensors");
}

/// The same without the optimizer.
std::string model_of(const std::string& run_dir) {
  return read_file(find_checkpoint(run_dir) + "/model.safetensors");
}

/// What resuming from `run_dir` is refused with, the same on both ranks.
std::string refusal(const Config& config, const std::string& run_dir, int n = 2) {
  std::vector<std::string> said(static_cast<size_t>(n), "nothing");
  run_threads(n, [&](Group g) {
    try {
      train(config, g, into(run_dir, run_dir));
    } catch (const UsageError& e) {
      said[static_cast<size_t>(g.rank())] = e.what();
    }
  });
  for (const auto& text : said) EXPECT_EQ(text, said[0]) << "ranks say different things";
  return said[0];
}

}  // namespace

TEST(train_resume, ten_steps_and_five_steps_twice_end_with_the_same_bits) {
  Folders f;
  const Config config = ten_steps(f.corpus);
  EXPECT_EQ(run_on(2, config, into(f.run("whole"))).steps, 10);

  const std::string halves = f.run("halves");
  const TrainResult first = run_on(2, config, into(halves), 5);
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.steps, 5);
  EXPECT_EQ(list_steps(halves), std::vector<int64_t>{5});
  EXPECT_NE(bytes_of(halves), bytes_of(f.run("whole"))) << "five steps change nothing";
  const TrainResult second = run_on(2, config, into(halves, halves));
  EXPECT_FALSE(second.stopped);
  EXPECT_EQ(second.steps, 10);
  EXPECT_TRUE(bytes_of(halves) == bytes_of(f.run("whole")));
}

TEST(train_resume, every_stage_of_zero_goes_on_with_the_same_bits) {
  for (const Sets& sets :
       {Sets{"zero_optimization.stage=1"}, Sets{"zero_optimization.stage=2"},
        Sets{"zero_optimization.stage=3", "zero_optimization.stage3_param_persistence_threshold=0"},
        Sets{"zero_optimization.stage=2", "bf16.enabled=true"},
        Sets{"zero_optimization.stage=1", "zero_optimization.share_weights=true"},
        Sets{"zero_optimization.stage=3", "parallelism.dp_shard=1"}}) {
    Folders f;
    const Config config = ten_steps(f.corpus, sets);
    run_on(2, config, into(f.run("whole")));
    run_on(2, config, into(f.run("halves")), 5);
    EXPECT_NE(all_bytes_of(f.run("halves")), all_bytes_of(f.run("whole")));
    EXPECT_EQ(run_on(2, config, into(f.run("halves"), f.run("halves"))).steps, 10);
    EXPECT_TRUE(all_bytes_of(f.run("halves")) == all_bytes_of(f.run("whole"))) << sets[0];
  }
}

TEST(train_resume, zero_with_its_state_on_disk_goes_on_with_the_same_bits) {
  Folders f;
  const Config config = ten_steps(
      f.corpus, {"zero_optimization.stage=2", "zero_optimization.offload_optimizer.device=nvme",
                 "zero_optimization.offload_optimizer.nvme_path=" + f.folder.path(),
                 "zero_optimization.sub_group_size=4096"});
  run_on(2, config, into(f.run("whole")));
  run_on(2, config, into(f.run("halves")), 5);
  run_on(2, config, into(f.run("halves"), f.run("halves")));
  EXPECT_TRUE(all_bytes_of(f.run("halves")) == all_bytes_of(f.run("whole")));
}

TEST(train_resume, another_layout_goes_on_and_weights_load_under_any) {
  Folders f;
  run_on(2,
         ten_steps(f.corpus, {"zero_optimization.stage=3",
                              "zero_optimization.stage3_param_persistence_threshold=0"}),
         into(f.run("a")), 2);
  const Sets stage_2{"zero_optimization.stage=2"};
  EXPECT_EQ(run_on(2, ten_steps(f.corpus, stage_2), into(f.run("b"), f.run("a"))).steps, 10);
  run_on(2, ten_steps(f.corpus), into(f.run("plain")), 2);
  // Not reproducible: the sums of two ranks' halves are the same ones.
  const auto a = load_model(ten_steps(f.corpus), f.run("a")),
             plain = load_model(ten_steps(f.corpus), f.run("plain"));
  for (size_t i = 0; i < a->parameters().size(); ++i)
    EXPECT_TRUE(at::allclose(a->parameters()[i], plain->parameters()[i], 1e-4, 1e-6)) << i;
}

TEST(train_resume, a_step_folder_is_resumed_into_another_run_folder) {
  Folders f;
  const Config config = ten_steps(f.corpus, {"checkpoint.every=5"});
  run_on(2, config, into(f.run("a")));
  const std::string at_five = f.run("a") + "/" + step_folder_name(5);
  run_on(2, config, into(f.run("b"), at_five));
  EXPECT_TRUE(bytes_of(f.run("b")) == bytes_of(f.run("a")));
  EXPECT_EQ(list_steps(f.run("b")), std::vector<int64_t>{10});
}

TEST(train_resume, momentum_and_the_place_in_the_data_come_back) {
  // 256 digits in steps of 16: the run goes through an end of an epoch behind the checkpoint.
  Folders f;
  const Config config = digits("mlp", {"training.steps=20", "checkpoint.every=14"});
  run_on(2, config, into(f.run("a")));
  run_on(2, config, into(f.run("b"), f.run("a") + "/" + step_folder_name(14)));
  EXPECT_TRUE(bytes_of(f.run("b")) == bytes_of(f.run("a")));
}

// Three steps in one layout, three in another. 16 pairs: each layout saves once and goes on once,
// each stage is followed by each stage, and each number of ranks by each. All 256 with
// TRIREME_SOAK=1.
TEST(train_resume, a_reproducible_run_goes_on_with_the_same_bits_in_every_layout) {
  Folders f;
  constexpr std::array<int, 4> kRanks{1, 2, 4, 8};
  const auto config = [&](int stage) {
    return tiny_gpt(f.corpus,
                    {"training.reproducible=true", "training.leaves=8", "training.eval_batches=1",
                     "model.width=8", "model.context=8", "train_batch_size=8",
                     fmt::format("zero_optimization.stage={}", stage),
                     "zero_optimization.stage3_param_persistence_threshold=0"});
  };
  const auto name = [](int ranks, int stage) { return fmt::format("{}_stage_{}", ranks, stage); };
  run_on(1, config(0), into(f.run("calm")));
  StepReader calm(find_checkpoint(f.run("calm")));
  const bool all = std::getenv("TRIREME_SOAK") != nullptr;
  for (int stage : {0, 1, 2, 3})
    for (size_t i : {0, 1, 2, 3}) {
      const std::string half = f.run("half_" + name(kRanks[i], stage));
      EXPECT_EQ(run_on(kRanks[i], config(stage), into(half), 3).steps, 3);
      for (int next : {0, 1, 2, 3})
        for (size_t j : {0, 1, 2, 3}) {
          const auto step = static_cast<size_t>(stage);
          if (!all && (j != (i + step) % 4 || next != static_cast<int>(i))) continue;
          const std::string pair = name(kRanks[i], stage) + "_to_" + name(kRanks[j], next);
          EXPECT_EQ(run_on(kRanks[j], config(next), into(f.run(pair), half)).steps, 6);
          StepReader end(find_checkpoint(f.run(pair)));
          EXPECT_EQ(differences(calm, end), "") << pair;
        }
    }
}

TEST(train_resume, what_would_silently_train_something_else_is_refused_by_name) {
  Folders f;
  const std::string run_dir = f.run("a");
  run_on(2, ten_steps(f.corpus), into(run_dir), 2);
  const std::string before = bytes_of(run_dir);
  auto refused = [&](const Sets& sets, const std::vector<std::string>& parts) {
    const std::string text = refusal(ten_steps(f.corpus, sets), run_dir);
    for (const auto& part : parts) EXPECT_TRUE(has(text, part)) << part << " is not in: " << text;
    EXPECT_TRUE(has(text, run_dir)) << text;
  };
  refused({"training.seed=7"}, {"training.seed", "42", "7"});
  refused({"data.validation_fraction=0.2"}, {"other data"});
  refused({"model.width=64"}, {"model.wte.weight", "[256, 32]", "[256, 64]"});
  refused({"model.layers=1"}, {"blocks.1."});
  refused({"optimizer.type=SGD", "optimizer.params.momentum=0.9"}, {"optim."});
  EXPECT_TRUE(bytes_of(run_dir) == before) << "a refused resume wrote something";
  EXPECT_EQ(list_steps(run_dir), std::vector<int64_t>{2});

  const std::string other = write_corpus(f.folder, "other.txt");
  EXPECT_TRUE(has(refusal(ten_steps(other), run_dir), "other data"));
}

TEST(train_resume, files_of_the_same_lengths_with_other_contents_are_refused) {
  Folders f;
  run_on(2, ten_steps(f.corpus), into(f.run("a")), 2);
  std::string text = read_file(f.corpus);
  std::swap(text.front(), text.back());
  write_file_atomic(f.corpus, text);
  const std::string said = refusal(ten_steps(f.corpus), f.run("a"));
  EXPECT_TRUE(has(said, "was trained on other data") && has(said, "their contents differ")) << said;
  EXPECT_EQ(list_steps(f.run("a")), std::vector<int64_t>{2});
}

TEST(train_resume, a_corpus_that_moved_to_another_folder_is_the_same_data) {
  Folders f;
  PrivateFolder elsewhere;
  run_on(2, ten_steps(f.corpus), into(f.run("a")), 2);
  const std::string moved = write_corpus(elsewhere);
  EXPECT_EQ(run_on(2, ten_steps(moved), into(f.run("a"), f.run("a"))).steps, 10);
}

TEST(train_resume, a_step_of_a_version_that_did_not_look_at_contents_goes_on) {
  Folders f;
  run_on(2, ten_steps(f.corpus), into(f.run("a")), 2);
  const std::string file = find_checkpoint(f.run("a")) + "/" + CheckpointIndex::kFileName;
  CheckpointIndex index = parse_index(read_file(file), file);
  ASSERT_EQ(index.values.erase("data.contents"), 1u);
  write_file_atomic(file, index_text(index));
  EXPECT_EQ(run_on(2, ten_steps(f.corpus), into(f.run("a"), f.run("a"))).steps, 10);
  EXPECT_TRUE(text_in_step(find_checkpoint(f.run("a")), "data.contents"));
}

TEST(train_resume, more_steps_done_than_asked_for_is_refused) {
  Folders f;
  run_on(1, ten_steps(f.corpus), into(f.run("a")), 4);
  const std::string text = refusal(ten_steps(f.corpus, {"training.steps=3"}), f.run("a"), 1);
  EXPECT_TRUE(has(text, "4 steps") && has(text, "training.steps is 3")) << text;
}

TEST(train_resume, other_leaves_are_refused_in_reproducible_mode_alone) {
  Folders f;
  const Sets four = {"training.reproducible=true", "training.leaves=4"};
  run_on(2, ten_steps(f.corpus, four), into(f.run("a")), 2);
  const std::string text =
      refusal(ten_steps(f.corpus, {"training.reproducible=true", "training.leaves=8"}), f.run("a"));
  EXPECT_TRUE(has(text, "leaves=4") && has(text, "leaves=8")) << text;
  // Without the promise another split is as good.
  const TrainResult plain = run_on(2, ten_steps(f.corpus, {"gradient_accumulation_steps=4"}),
                                   into(f.run("b"), f.run("a")));
  EXPECT_EQ(plain.steps, 10);
}

TEST(train_resume, the_last_two_checkpoints_stay_and_latest_names_the_newest) {
  Folders f;
  const std::string run_dir = f.run("a");
  const Sets every = {"checkpoint.every=3"};
  const TrainResult result = run_on(2, ten_steps(f.corpus, every), into(run_dir));
  EXPECT_EQ(list_steps(run_dir), (std::vector<int64_t>{9, 10}));
  std::string latest = read_file(run_dir + "/latest");
  latest.erase(latest.find_last_not_of('\n') + 1);
  EXPECT_EQ(latest, step_folder_name(10));
  EXPECT_EQ(find_checkpoint(run_dir), run_dir + "/" + step_folder_name(10));
  EXPECT_EQ(result.checkpoint, run_dir + "/" + step_folder_name(10)) << "also on rank 1";

  const Sets three = {"checkpoint.every=3", "checkpoint.keep=3", "checkpoint.at_end=false"};
  const std::string other = f.run("b");
  run_on(2, ten_steps(f.corpus, three), into(other));
  EXPECT_EQ(list_steps(other), (std::vector<int64_t>{3, 6, 9}));
}

TEST(train_resume, checkpoints_go_where_the_configuration_says) {
  Folders f;
  const std::string elsewhere = f.folder / "elsewhere";
  const Config config =
      ten_steps(f.corpus, {"training.steps=2", "checkpoint.folder=\"" + elsewhere + "\""});
  run_on(2, config, into(f.run("a")));
  EXPECT_EQ(list_steps(elsewhere), std::vector<int64_t>{2});
  EXPECT_TRUE(list_steps(f.run("a")).empty());
}

TEST(train_resume, saving_changes_no_bit_of_the_run) {
  Folders f;
  run_on(2, ten_steps(f.corpus), into(f.run("a")));
  run_on(2, ten_steps(f.corpus, {"checkpoint.every=1", "training.eval_every=2"}), into(f.run("b")));
  EXPECT_TRUE(model_of(f.run("a")) == model_of(f.run("b")));
}

}  // namespace resume_test
