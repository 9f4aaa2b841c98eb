// SPDX-License-Identifier: Apache-2.0
// checkpoint.names: links to the steps that people look for.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/train/run_folders.h"
#include "trireme/checkpoint/steps/run_folder/step_links.h"
#include "trireme/train/trainer.h"

namespace step_names_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Links = std::map<std::string, int64_t>;

/// 96 samples, of which a step takes 32: three steps are an epoch.
Config three_epochs(Sets sets = {}) {
  sets.insert(sets.begin(),
              {"train_batch_size=32", "data.train_samples=96", "data.validation_samples=20",
               "training.steps=0", "training.epochs=3", "training.eval_epochs=true",
               "checkpoint.names=true", "checkpoint.keep=1", "checkpoint.keep_best=1"});
  return digits("mlp", sets);
}

/// `stop_after` > 0: rank 1 asks to stop then.
void train_on_two(const Config& config, const std::string& run_dir, const std::string& resume = "",
                  int stop_after = 0) {
  run_threads(
      2,
      [&](Group g) {
        TrainOptions options;
        options.run_dir = run_dir;
        if (!resume.empty()) options.resume = resume;
        int looks = 0;
        if (stop_after > 0 && g.rank() == 1)
          options.stop_asked = [&looks, stop_after] { return ++looks == stop_after ? 2 : 0; };
        train(config, g, options);
      },
      std::chrono::seconds(60));
}

}  // namespace

TEST(train_step_names, an_epoch_ends_with_a_validation_and_a_step_of_its_own) {
  for (const Sets& sets : {Sets{}, Sets{"checkpoint.async=true"}}) {
    Folders f;
    const std::string run = f.run("a");
    train_on_two(three_epochs(sets), run);
    const auto losses = held_out_losses(run);
    ASSERT_EQ(losses.size(), 3u);
    int64_t best = 3;
    for (const auto& [step, loss] : losses) {
      EXPECT_EQ(step % 3, 0);
      if (loss <= losses.at(best)) best = step;
    }
    EXPECT_EQ(step_links(run),
              (Links{{"last", 9}, {"best", best}, {"epoch_1", 3}, {"epoch_2", 6}, {"epoch_3", 9}}));
    EXPECT_EQ(list_steps(run), (std::vector<int64_t>{3, 6, 9})) << "they stay, with keep 1";
  }
  Folders f;  // without the key there are none, and epochs are not saved
  train_on_two(three_epochs({"checkpoint.names=false", "checkpoint.keep_best=0"}), f.run("a"));
  EXPECT_EQ(step_links(f.run("a")), Links{});
  EXPECT_EQ(list_steps(f.run("a")), std::vector<int64_t>{9});
}

TEST(train_step_names, a_run_goes_on_from_each_of_its_names) {
  Folders f;
  const std::string run = f.run("a");
  train_on_two(three_epochs(), run, "", 5);
  EXPECT_EQ(step_links(run), (Links{{"last", 5}, {"best", 3}, {"epoch_1", 3}, {"interrupt", 5}}));
  for (const char* name : {"last", "best", "epoch_1", "interrupt"}) {
    const std::string other = f.run(std::string("from_") + name);
    train_on_two(three_epochs(), other, run + "/" + name);
    EXPECT_EQ(step_links(other).at("last"), 9) << name;
    EXPECT_EQ(step_links(other).count("epoch_1"), 0u) << name << ": it was of another folder";
    EXPECT_EQ(step_links(other).at("epoch_2"), 6) << name;
  }
  train_on_two(three_epochs(), run, run + "/interrupt");
  const Links all = step_links(run);
  EXPECT_EQ(all.at("interrupt"), 5) << "its step stays";
  EXPECT_EQ(all.at("epoch_3"), 9);
  EXPECT_TRUE(std::filesystem::exists(run + "/interrupt/"));
}

TEST(train_step_names, a_name_that_cannot_be_made_is_a_warning) {
  Folders f;
  const std::string run = f.run("a");
  std::filesystem::create_directory(run + "/last");
  train_on_two(three_epochs(), run);
  EXPECT_TRUE(std::filesystem::is_directory(run + "/last"));
  EXPECT_FALSE(std::filesystem::is_symlink(run + "/last"));
  EXPECT_EQ(step_links(run).at("epoch_3"), 9);
}

}  // namespace step_names_test
