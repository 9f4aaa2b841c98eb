// SPDX-License-Identifier: Apache-2.0
// When a run saves, which steps stay, and what an error of the disk does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/base/error.h"
#include "trireme/base/failpoint.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/train/saving.h"
#include "trireme/train/trainer.h"

namespace run_saves_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Steps = std::set<int64_t>;

/// On two thread ranks; what each of them threw, or "". `stop_after` > 0: rank 1 asks to stop then.
std::vector<std::string> train_on_two(const Config& config, const std::string& run_dir,
                                      bool resume = false, int stop_after = 0) {
  std::vector<std::string> thrown(2);
  run_threads(
      2,
      [&](Group g) {
        TrainOptions options;
        options.run_dir = run_dir;
        if (resume) options.resume = run_dir;
        int looks = 0;
        if (stop_after > 0 && g.rank() == 1)
          options.stop_asked = [&looks, stop_after] { return ++looks == stop_after ? 15 : 0; };
        try {
          train(config, g, options);
        } catch (const ResourceError& e) {
          thrown[static_cast<size_t>(g.rank())] = e.what();
        }
      },
      std::chrono::seconds(120));
  return thrown;
}

Steps saved_in(const std::string& run_dir) {
  const auto steps = list_steps(run_dir);
  return {steps.begin(), steps.end()};
}

Steps best_of(const std::map<int64_t, double>& losses, size_t count) {
  std::vector<std::pair<double, int64_t>> order;
  for (const auto& [step, loss] : losses) order.emplace_back(loss, -step);
  std::sort(order.begin(), order.end());
  Steps best;
  for (size_t i = 0; i < count; ++i) best.insert(-order.at(i).second);
  return best;
}

/// A rate at which the held-out loss goes up and down.
Config jumping(const std::string& corpus, Sets sets = {}) {
  sets.insert(sets.begin(),
              {"training.steps=8", "training.eval_every=1", "training.eval_batches=2",
               "optimizer.params.lr=0.3", "checkpoint.keep=1", "checkpoint.keep_best=2"});
  return tiny_gpt(corpus, sets);
}

struct Failpoints {
  explicit Failpoints(const std::string& text) { set_failpoints(text); }
  ~Failpoints() { set_failpoints(""); }
};

const Sets kLayouts[] = {{}, {"zero_optimization.stage=2"}, {"zero_optimization.stage=3"}};

}  // namespace

TEST(train_run_saves, the_best_by_held_out_loss_stay_and_an_evaluation_saves_them) {
  for (const Sets& sets : kLayouts) {
    Folders f;
    train_on_two(jumping(f.corpus, sets), f.run("a"));
    const auto losses = held_out_losses(f.run("a"));
    ASSERT_EQ(losses.size(), 8u);
    Steps wanted = best_of(losses, 2);
    wanted.insert(8);
    EXPECT_EQ(saved_in(f.run("a")), wanted);
    EXPECT_EQ(find_checkpoint(f.run("a")), f.run("a") + "/" + step_folder_name(8));
    for (int64_t step : wanted)
      EXPECT_EQ(number_in_step(f.run("a") + "/" + step_folder_name(step), kHeldOutLoss),
                losses.at(step));
  }
}

TEST(train_run_saves, the_losses_of_steps_survive_a_restart) {
  for (const Sets& sets : {kLayouts[0], kLayouts[1]}) {
    Folders f;
    const Config config = jumping(f.corpus, sets);
    train_on_two(config, f.run("whole"));
    for (int stop : {3, 6}) {
      const std::string run = f.run("stopped" + std::to_string(stop));
      train_on_two(config, run, false, stop);
      EXPECT_TRUE(saved_in(run).contains(stop)) << "asked to stop, it is saved";
      train_on_two(config, run, true);
      // The step at which it stopped was not evaluated, and is the only one that may be missing.
      auto losses = held_out_losses(f.run("whole"));
      losses.erase(stop);
      Steps wanted = best_of(losses, 2);
      wanted.insert(8);
      EXPECT_EQ(saved_in(run), wanted) << "stopped after " << stop;
    }
  }
}

TEST(train_run_saves, keep_best_without_held_out_data_is_refused) {
  Folders f;
  const Config config = digits(
      "mlp", {"data.validation_samples=0", "training.eval_every=2", "checkpoint.keep_best=1"});
  try {
    train_on_two(config, f.run("a"));
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_TRUE(has(e.what(), "checkpoint.keep_best is 1")) << e.what();
  }
}

TEST(train_run_saves, every_nth_step_is_saved_and_stays_for_ever) {
  Folders f;
  const Sets sets = {"training.steps=11", "checkpoint.every=3", "checkpoint.keep=2",
                     "checkpoint.keep_every=4"};
  train_on_two(digits("mlp", sets), f.run("a"));
  EXPECT_EQ(saved_in(f.run("a")), (Steps{4, 8, 9, 11}));
}

TEST(train_run_saves, rank_0s_clock_decides_for_all_ranks) {
  for (const Sets& sets : kLayouts) {
    Folders f;
    Sets more = {"checkpoint.keep=99", "checkpoint.at_end=false", "checkpoint.every_minutes=1e-9"};
    more.insert(more.end(), sets.begin(), sets.end());
    train_on_two(tiny_gpt(f.corpus, more), f.run("all"));
    EXPECT_EQ(saved_in(f.run("all")), (Steps{1, 2, 3, 4, 5, 6}));
    more[2] = "checkpoint.every_minutes=60";
    train_on_two(tiny_gpt(f.corpus, more), f.run("none"));
    EXPECT_EQ(saved_in(f.run("none")), Steps{});
    more[2] = "checkpoint.auto=true";
    train_on_two(tiny_gpt(f.corpus, more), f.run("auto"));
    EXPECT_EQ(saved_in(f.run("auto")), Steps{2}) << "the one that measures";
  }
}

// On a clock on which a step takes 10 seconds and a save 4.
TEST(train_run_saves, automatic_saves_stay_within_their_budget_from_the_second_on) {
  constexpr double kStep = 10, kSave = 4, kBudget = 0.02;
  constexpr int kSteps = 220;
  for (const Sets& sets : {kLayouts[0], kLayouts[2]}) {
    Folders f;
    Sets more = {"checkpoint.auto=true",  fmt::format("checkpoint.budget={}", kBudget),
                 "checkpoint.keep=999",   "checkpoint.at_end=false",
                 "model.hidden=[4]",      "data.workers=0",
                 "training.eval_every=0", fmt::format("training.steps={}", kSteps)};
    more.insert(more.end(), sets.begin(), sets.end());
    const Config config = digits("mlp", more);
    std::vector<double> shares;  // of the time, when a save has ended
    run_threads(
        2,
        [&](Group g) {
          TrainOptions options;
          options.run_dir = f.run("a");
          int begun = 0;  // steps
          const auto saving = [&] {
            return kSave * static_cast<double>(list_steps(f.run("a")).size());
          };
          options.stop_asked = [&] { return ++begun, 0; };
          // Rank 0's decides. A save takes its time by being there.
          options.clock = [&] { return g.rank() == 0 ? kStep * begun + saving() : 0.0; };
          options.say = [&](const std::string& line) {
            if (line.starts_with("saved ")) shares.push_back(saving() / options.clock());
          };
          train(config, g, options);
        },
        std::chrono::seconds(120));
    EXPECT_EQ(saved_in(f.run("a")).size(), shares.size());
    ASSERT_GE(shares.size(), 2u);
    EXPECT_GT(shares[0], kBudget) << "the first one measures what a save costs";
    for (size_t i = 1; i < shares.size(); ++i)
      EXPECT_LE(shares[i], kBudget + 1e-9) << "save " << i + 1;
    // And no fewer than that allows.
    const auto saves = static_cast<double>(shares.size());
    EXPECT_EQ(saves, std::floor(kBudget * (kStep * kSteps + kSave * saves) / kSave));
  }
}

// On a clock on which a step takes 10 seconds, and 11 while a save is being written, which takes as
// many steps as this machine makes meanwhile: counting the wait alone, a save would begin every ten
// seconds, and saving take up to a tenth of the time.
TEST(train_run_saves, what_steps_take_longer_beside_asynchronous_saves_is_in_the_budget) {
  constexpr double kBudget = 0.05;
  const Failpoints slow("checkpoint.write=sleep(20)");
  Folders f;
  const Config config =
      digits("mlp", {"checkpoint.auto=true", fmt::format("checkpoint.budget={}", kBudget),
                     "checkpoint.async=true", "checkpoint.keep=999", "checkpoint.at_end=false",
                     "model.hidden=[4]", "data.workers=0", "training.eval_every=0",
                     "training.steps=4000"});
  double seconds = 0, lost = 0, costliest = 0, cost = 0;
  std::vector<double> too_much;  // beyond the budget and one save, at each save
  run_threads(
      2,
      [&](Group g) {
        TrainOptions options;
        options.run_dir = f.run("a");
        if (g.rank() == 0) {
          // Once a step, before it.
          options.stop_asked = [&] {
            bool writing = false;
            for (const auto& entry : std::filesystem::directory_iterator(f.run("a")))
              writing = writing || entry.path().filename().string().starts_with(".tmp-step");
            const double longer = writing ? 1 : 0;
            seconds += 10 + longer, lost += longer, cost += longer;
            return 0;
          };
          options.clock = [&] { return seconds; };
          options.say = [&](const std::string& line) {
            if (!line.starts_with("saved ")) return;
            costliest = std::max(costliest, std::exchange(cost, 0));
            too_much.push_back(lost - kBudget * seconds - costliest);
          };
        }
        train(config, g, options);
      },
      std::chrono::seconds(120));
  ASSERT_GE(too_much.size(), 3u) << "lost " << lost << " of " << seconds;
  EXPECT_GT(costliest, 0);
  for (size_t i = 1; i < too_much.size(); ++i)
    EXPECT_LE(too_much[i], 0) << "save " << i + 1 << " of " << too_much.size();
}

TEST(train_run_saves, a_save_that_fails_is_a_warning_or_the_end_of_all_ranks_as_configured) {
  for (const Sets& sets : kLayouts) {
    Folders f;
    Sets more = {"checkpoint.every=2", "checkpoint.keep=9", "checkpoint.on_error=warn"};
    more.insert(more.end(), sets.begin(), sets.end());
    {
      const Failpoints full("checkpoint.write@1=error(28)");
      EXPECT_EQ(train_on_two(tiny_gpt(f.corpus, more), f.run("warned")),
                (std::vector<std::string>{"", ""}));
      EXPECT_EQ(saved_in(f.run("warned")), (Steps{4, 6}));
    }
    more[2] = "checkpoint.on_error=stop";
    const Failpoints full("checkpoint.write@1=error(28)");
    const auto thrown = train_on_two(tiny_gpt(f.corpus, more), f.run("stopped"));
    EXPECT_TRUE(has(thrown[0], "checkpoint of step 2 was not saved")) << thrown[0];
    EXPECT_TRUE(has(thrown[0], "No space left on device")) << thrown[0];
    EXPECT_EQ(thrown[0], thrown[1]) << "the same on all ranks";
    EXPECT_EQ(saved_in(f.run("stopped")), Steps{});
  }
}

TEST(train_run_saves, a_save_at_the_end_or_on_a_signal_must_succeed) {
  for (const Sets& sets : kLayouts)
    for (int stop_after : {0, 3}) {
      Folders f;
      const Failpoints full("checkpoint.write=error(28)");
      const auto thrown = train_on_two(tiny_gpt(f.corpus, sets), f.run("a"), false, stop_after);
      EXPECT_TRUE(has(thrown[0], stop_after ? "checkpoint of step 3 was not saved"
                                            : "checkpoint of step 6 was not saved"))
          << thrown[0];
      EXPECT_EQ(thrown[0], thrown[1]);
    }
}

}  // namespace run_saves_test
