// SPDX-License-Identifier: Apache-2.0
// Compression, averaging and strategies in whole runs: what they save and go on from, and what they
// refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/processes.h"
#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/train/exchange/gradient_sync_strategy.h"
#include "trireme/train/trainer.h"

namespace exchange_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

TrainResult run_on(int n, const Config& config, const std::string& run_dir, bool resume = false,
                   int stop_after = 0) {
  TrainResult result;
  run_threads(
      n,
      [&](Group g) {
        TrainOptions o;
        o.run_dir = run_dir;
        if (resume) o.resume = run_dir;
        int looks = 0;
        if (stop_after > 0) o.stop_asked = [&looks, stop_after] { return ++looks == stop_after; };
        const TrainResult mine = train(config, g, o);
        if (g.rank() == 0) result = mine;
      },
      std::chrono::seconds(60));
  return result;
}

const std::vector<Sets> kKinds = {
    {"averaging.type=local_sgd", "averaging.period=4"},
    {"averaging.type=local_sgd", "averaging.period=3", "averaging.start_step=4"},
    {"averaging.type=diloco", "averaging.period=3"},
    {"averaging.type=diloco", "averaging.period=3", "averaging.compression=int8"},
    {"averaging.type=hierarchical", "averaging.group_sizes=[2]", "averaging.periods=[4]"},
    {"compression.type=int8"},
    {"compression.type=topk", "compression.density=0.05"},
    {"compression.type=sign"},
    {"compression.type=powersgd", "compression.rank=2"},
    {"comm.strategy=adasum"},
    {"comm.strategy=parameter_server"},
    {"comm.strategy=broadcast_parameters"},
};

}  // namespace

TEST(train_exchange, ten_steps_and_five_steps_twice_end_with_the_same_bits) {
  for (const Sets& kind : kKinds) {
    Folders f;
    Sets sets{"training.steps=10", "training.eval_every=4", "training.eval_batches=2"};
    sets.insert(sets.end(), kind.begin(), kind.end());
    const Config config = tiny_gpt(f.corpus, sets);
    run_on(2, config, f.run("whole"));
    run_on(2, config, f.run("halves"), false, 5);
    EXPECT_NE(all_bytes_of(f.run("halves")), all_bytes_of(f.run("whole")));
    EXPECT_EQ(run_on(2, config, f.run("halves"), true).steps, 10);
    EXPECT_TRUE(all_bytes_of(f.run("halves")) == all_bytes_of(f.run("whole")))
        << kind[0] << " " << kind.back();
  }
}

// What it chooses hangs on the clock; that it goes on with what it had chosen does not.
TEST(train_exchange, auto_saves_its_choice_and_goes_on) {
  Folders f;
  const Config config = tiny_gpt(f.corpus, {"training.steps=12", "compression.type=auto"});
  const TrainResult first = run_on(2, config, f.run("run"), false, 6);
  EXPECT_EQ(first.steps, 6);
  const TrainResult second = run_on(2, config, f.run("run"), true);
  EXPECT_EQ(second.steps, 12);
  EXPECT_TRUE(std::isfinite(second.loss));
  EXPECT_LT(second.loss, 6) << "of 5.5 for bytes at random";
}

TEST(train_exchange, a_checkpoint_of_ranks_apart_holds_the_mean_for_whoever_loads_the_model) {
  Folders f;
  const Config config =
      tiny_gpt(f.corpus, {"training.steps=5", "averaging.type=local_sgd", "averaging.period=100"});
  std::vector<NamedTensors> own(2);
  run_threads(
      2, [&](Group g) { own[static_cast<size_t>(g.rank())] = train_on(config, g, 5).weights; });
  EXPECT_NE(first_difference(own[0], own[1]), "") << "the ranks are apart";
  run_on(2, config, f.run("run"));
  auto model = load_model(config, f.run("run"));
  NamedTensors mean;
  for (size_t i = 0; i < own[0].size(); ++i)
    mean.emplace_back(own[0][i].first, (own[0][i].second + own[1][i].second) / 2);
  NamedTensors loaded;
  for (const auto& item : model->named_parameters()) loaded.emplace_back(item.key(), item.value());
  EXPECT_LT(relative_distance(loaded, mean), 1e-6);
}

TEST(train_exchange, another_number_of_ranks_goes_on) {
  Folders f;
  for (const char* kind : {"averaging.type=local_sgd", "compression.type=int8"}) {
    const std::string run = f.run(std::string(kind).substr(0, 5));
    run_on(2, tiny_gpt(f.corpus, {"training.steps=2", kind}), run);
    const TrainResult result = run_on(4, tiny_gpt(f.corpus, {"training.steps=4", kind}), run, true);
    EXPECT_EQ(result.steps, 4);
    EXPECT_LT(result.loss, 6) << kind << ", of 5.5 for bytes at random";
  }
}

TEST(train_exchange, what_ranks_cannot_do_is_refused_on_all_of_them) {
  Folders f;
  auto says = [&](const Sets& sets, const std::string& part) {
    const std::string said =
        refusal([&] { run_on(4, tiny_gpt(f.corpus, sets), f.run("refused")); });
    EXPECT_TRUE(has(said, part)) << said;
  };
  says({"averaging.type=local_sgd", "averaging.near=3"}, "averaging.near is 3");
  says({"averaging.type=hierarchical", "averaging.group_sizes=[2]", "averaging.periods=[2]"},
       "the last level must have all of them");
  says({"compression.type=powersgd", "compression.rank=4000"}, "4000");
}

}  // namespace exchange_test
