// SPDX-License-Identifier: Apache-2.0
// Every optimizer and every schedule by its name in a configuration.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/train/run_folders.h"
#include "tests/train/same_steps.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/train/trainer.h"

namespace optimizers_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Choice {
  const char* type;
  Sets sets;
};

const std::vector<Choice>& optimizers() {
  static const std::vector<Choice> all = {
      {"Adam", {"optimizer.params.lr=3e-3", "optimizer.params.adam_w_mode=false"}},
      {"AdamW", {"optimizer.params.lr=3e-3"}},
      {"AdaMod", {"optimizer.params.lr=0.05", "optimizer.params.beta3=0.9"}},
      {"SGD", {"optimizer.params.lr=0.05"}},
      {"Lamb", {"optimizer.params.lr=0.05", "optimizer.params.max_coeff=5"}},
      {"Lars", {"optimizer.params.lr=1", "optimizer.params.trust_coefficient=0.02"}},
      {"Lion", {"optimizer.params.lr=1e-3"}},
      {"Adafactor", {"optimizer.params.lr=0.05", "optimizer.params.d=1.0"}},
      {"RMSprop", {"optimizer.params.lr=1e-3", "optimizer.params.centered=true"}},
      {"Adagrad", {"optimizer.params.lr=0.01", "optimizer.params.lr_decay=0.01"}}};
  return all;
}

Config with(const Choice& choice, Sets more = {}) {
  Sets sets = choice.sets;
  sets.push_back(std::string("optimizer.type=") + choice.type);
  sets.insert(sets.end(), more.begin(), more.end());
  return digits("mlp", sets);
}

/// Rates of the first steps of a run of 20 with micro-batches of 16 samples.
std::vector<double> rates(const Sets& sets, int64_t steps) {
  Sets all = {"training.steps=20", "optimizer.params.lr=0.5"};
  all.insert(all.end(), sets.begin(), sets.end());
  const Config config = digits("mlp", all);
  std::vector<double> found;
  run_threads(1, [&](Group g) {
    Run run = build_run(config, g);
    for (int64_t step = 0; step < steps; ++step) found.push_back(run.lr->lr_at(step));
  });
  return found;
}

}  // namespace

TEST(train_optimizers, every_type_trains_on_two_ranks) {
  for (const auto& choice : optimizers()) {
    const auto ranks = train_on_threads(2, with(choice, {"training.steps=24"}), 24);
    const auto& losses = ranks[0].losses;
    EXPECT_LT(losses[22] + losses[23], 0.9 * (losses[0] + losses[1])) << choice.type;
    EXPECT_EQ(first_difference(ranks[0].weights, ranks[1].weights), "") << choice.type;
  }
}

TEST(train_optimizers, every_type_resumes_from_its_checkpoint_with_the_same_bits) {
  PrivateFolder folder;
  auto bytes = [](const std::string& run_dir) {
    const std::string step = find_checkpoint(run_dir);
    return read_file(step + "/model.safetensors") + read_file(step + "/state.safetensors");
  };
  for (const auto& choice : optimizers()) {
    const Config config =
        with(choice, {"model.hidden=[8]", "training.steps=6", "training.eval_batches=1",
                      "scheduler.type=polynomial", "scheduler.params.power=2"});
    auto into = [&](const char* part, int stop_after, bool resume) {
      TrainOptions options;
      options.run_dir = folder / (std::string(choice.type) + part);
      std::filesystem::create_directories(options.run_dir);
      if (resume) options.resume = options.run_dir;
      run_threads(1, [&](Group g) {
        int looks = 0;
        TrainOptions mine = options;
        if (stop_after > 0) mine.stop_asked = [&] { return ++looks == stop_after; };
        train(config, g, mine);
      });
      return options.run_dir;
    };
    const std::string whole = bytes(into("-whole", 0, false));
    const std::string half = bytes(into("-parts", 3, false));
    const std::string parts = bytes(into("-parts", 0, true));
    EXPECT_NE(half, parts) << choice.type;
    EXPECT_TRUE(whole == parts) << choice.type;
  }
}

// Three steps in one layout, three in another.
TEST(train_optimizers, every_type_goes_on_with_the_same_bits_in_another_layout) {
  struct Layout {
    int ranks;
    Sets sets;
  };
  const Sets stage_3{"zero_optimization.stage=3",
                     "zero_optimization.stage3_param_persistence_threshold=0"};
  const std::vector<Layout> sharded = {
      {1, {}},
      {2, {"zero_optimization.stage=1"}},
      {4, stage_3},
      {4, {"zero_optimization.stage=2", "parallelism.dp_shard=2", "parallelism.dp_replicate=2"}}};
  // Its state is factored over whole matrices.
  const std::vector<Layout> whole = {{1, {}}, {2, {}}, {4, {}}};
  for (const auto& choice : optimizers()) {
    const Folders f;
    const std::string type = choice.type;
    const auto& layouts = type == "Adafactor" ? whole : sharded;
    // Train to the end, or to step 3.
    const auto run = [&](const Layout& layout, const std::string& dir, const std::string& from,
                         bool half) {
      Sets sets = {"training.reproducible=true", "training.leaves=4",        "training.steps=6",
                   "train_batch_size=8",         "data.train_samples=64",    "data.workers=0",
                   "model.hidden=[5]",           "data.validation_samples=0"};
      if (type == "Adam") sets.push_back("optimizer.params.amsgrad=true");
      if (type == "RMSprop") sets.push_back("optimizer.params.momentum=0.9");
      sets.insert(sets.end(), layout.sets.begin(), layout.sets.end());
      const Config config = with(choice, sets);
      run_threads(layout.ranks, [&](Group g) {
        TrainOptions options;
        options.run_dir = dir;
        if (!from.empty()) options.resume = from;
        int looks = 0;
        if (half) options.stop_asked = [&] { return ++looks == 3; };
        EXPECT_EQ(train(config, g, options).steps, half ? 3 : 6);
      });
      return find_checkpoint(dir);
    };
    StepReader calm(run(layouts[0], f.run("calm"), "", false));
    for (size_t i = 0; i < layouts.size(); ++i) {
      const std::string half = run(layouts[i], f.run(fmt::format("half{}", i)), "", true);
      EXPECT_NE(differences(half, calm.folder()), "") << type << ": three steps change nothing";
      for (size_t j = 0; j < layouts.size(); ++j) {
        StepReader end(run(layouts[j], f.run(fmt::format("{}to{}", i, j)), half, false));
        EXPECT_EQ(differences(calm, end), "") << type << ": layout " << i << ", then " << j;
      }
    }
  }
}

TEST(train_optimizers, every_schedule_is_reached_by_its_name) {
  const auto near = [](const std::vector<double>& found, const std::vector<double>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-9) << i;
  };
  auto type = [](const char* name, Sets more = {}) {
    more.push_back(std::string("scheduler.type=") + name);
    for (size_t i = 0; i + 1 < more.size(); ++i) more[i] = "scheduler.params." + more[i];
    return more;
  };
  near(rates(type("constant"), 2), {0.5, 0.5});
  near(rates(type("linear", {"min_lr_ratio=0"}), 3), {0.5, 0.475, 0.45});
  near(rates(type("cosine", {"min_lr_ratio=0", "total_num_steps=2"}), 3), {0.5, 0.25, 0});
  near(rates(type("polynomial", {"power=2", "min_lr_ratio=0", "total_num_steps=2"}), 3),
       {0.5, 0.125, 0});
  near(rates(type("inverse_sqrt", {"warmup_num_steps=1"}), 4),
       {0.5, 0.5 / std::sqrt(2.0), 0.5 / std::sqrt(3.0), 0.25});
  near(rates(type("WSD", {"decay_num_steps=18", "min_lr_ratio=0"}), 5),
       {0.5, 0.5, 0.5, 0.5 * 17 / 18, 0.5 * 16 / 18});
  near(rates(type("WarmupLR", {"warmup_num_steps=2", "warmup_type=linear"}), 4), {0, 0, 0.25, 0.5});
  near(rates(type("WarmupDecayLR",
                  {"warmup_num_steps=2", "warmup_type=linear", "warmup_max_lr=0.18"}),
             5),
       {0, 0, 0.09, 0.18, 0.17});
  near(rates(type("WarmupCosineLR", {"warmup_num_steps=2", "warmup_type=linear",
                                     "total_num_steps=4", "cos_min_ratio=0"}),
             5),
       {0, 0, 0.25, 0.25, 0});
  near(rates(type("OneCycle", {"cycle_min_lr=0.1", "cycle_max_lr=0.3", "cycle_first_step_size=2",
                               "cycle_momentum=false", "decay_lr_rate=1", "decay_step_size=1"}),
             6),
       {0.1, 0.2, 0.3, 0.2, 0.1, 0.05});
  near(rates(type("LRRangeTest", {"lr_range_test_min_lr=0.1", "lr_range_test_step_size=2",
                                  "lr_range_test_staircase=true"}),
             4),
       {0.1, 0.1, 0.2, 0.2});
}

TEST(train_optimizers, rates_scale_with_the_batch) {
  EXPECT_NEAR(rates({"scheduler.lr_scaling=linear", "scheduler.base_batch_size=4"}, 1)[0], 2, 1e-9);
  EXPECT_NEAR(rates({"scheduler.lr_scaling=sqrt", "scheduler.base_batch_size=4"}, 1)[0], 1, 1e-9);
}

}  // namespace optimizers_test
