// SPDX-License-Identifier: Apache-2.0
// training.drop_last false: what is left of an epoch is a step of its own, whose mean is over what
// it has.
#include <gtest/gtest.h>

#include "tests/train/run_folders.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer.h"

namespace drop_last_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Epochs of 2 whole steps of 16 samples and one of `left`.
Config short_epochs(int64_t left, Sets sets = {}) {
  sets.insert(sets.begin(), {fmt::format("data.train_samples={}", 32 + left),
                             "training.drop_last=false", "training.steps=0", "training.epochs=2"});
  return digits("mlp", sets);
}

struct Steps {
  std::vector<int64_t> samples, weights;
  NamedTensors parameters;
};

Steps train_through(const Config& config, Group g) {
  trireme::Run run = build_run(config, g);
  start_data(run, config);
  Steps seen;
  while (run.step < run.steps) {
    const StepReport r = train_step(run);
    seen.samples.push_back(r.samples);
    seen.weights.push_back(r.weight);
  }
  seen.parameters = weights_of(run);
  return seen;
}

}  // namespace

TEST(train_drop_last, the_last_part_of_an_epoch_is_a_step_over_what_it_has) {
  for (const int64_t left : {1, 3, 15}) {
    Steps one;
    run_threads(1, [&](Group g) { one = train_through(short_epochs(left), g); });
    EXPECT_EQ(one.samples, (std::vector<int64_t>{16, 16, left, 16, 16, left}));
    EXPECT_EQ(one.weights, one.samples);
    for (int ranks : {2, 4})
      for (int accumulation : {1, 2})
        run_threads(ranks, [&](Group g) {
          const Steps mine = train_through(
              short_epochs(left, {fmt::format("gradient_accumulation_steps={}", accumulation)}), g);
          check<Error>(mine.samples == one.samples && mine.weights == one.weights, "samples");
          const double distance = relative_distance(mine.parameters, one.parameters);
          check<Error>(distance < 1e-5, "{} samples left, {} ranks: {}", left, ranks, distance);
        });
  }
}

TEST(train_drop_last, every_stage_of_zero_takes_the_same_steps) {
  Steps one;
  run_threads(1, [&](Group g) { one = train_through(short_epochs(1), g); });
  for (int stage : {1, 2, 3})
    run_threads(2, [&](Group g) {
      const Steps mine =
          train_through(short_epochs(1, {fmt::format("zero_optimization.stage={}", stage)}), g);
      const double distance = relative_distance(mine.parameters, one.parameters);
      check<Error>(distance < 1e-5, "stage {}: {}", stage, distance);
    });
}

TEST(train_drop_last, is_true_unless_it_is_given_and_leaves_the_last_part_out) {
  run_threads(1, [&](Group g) {
    const Steps seen = train_through(short_epochs(3, {"training.drop_last=true"}), g);
    check<Error>(seen.samples == std::vector<int64_t>{16, 16, 16, 16}, "samples");
  });
}

TEST(train_drop_last, a_resumed_run_goes_on_with_the_same_bits) {
  Folders f;
  const Config config = short_epochs(3, {"checkpoint.every=1", "checkpoint.keep=10"});
  auto run = [&](const std::string& dir, std::optional<std::string> from) {
    run_threads(2, [&](Group g) {
      TrainOptions options;
      options.run_dir = dir;
      options.resume = from;
      train(config, g, options);
    });
  };
  run(f.run("whole"), std::nullopt);
  for (int at : {2, 3, 4}) {  // before, behind the short step, and in the next epoch
    const std::string part = f.run("part" + std::to_string(at));
    run(part, fmt::format("{}/step-{:08}", f.run("whole"), at));
    EXPECT_EQ(all_bytes_of(part), all_bytes_of(f.run("whole"))) << "from step " << at;
  }
  run_threads(1, [&](Group g) {
    TrainOptions options;
    options.run_dir = f.run("other");
    options.resume = f.run("whole");
    try {
      train(short_epochs(3, {"training.drop_last=true"}), g, options);
      check<Error>(false, "resumed at another place in the data");
    } catch (const UsageError& e) {
      check<Error>(std::string(e.what()).find("was trained on other data") != std::string::npos,
                   "{}", e.what());
    }
  });
}

TEST(train_drop_last, data_smaller_than_a_step_is_one_step_an_epoch) {
  run_threads(2, [&](Group g) {
    const Config config = digits("mlp", {"data.train_samples=5", "training.drop_last=false",
                                         "training.steps=0", "training.epochs=3"});
    const Steps seen = train_through(config, g);
    check<Error>(seen.samples == std::vector<int64_t>{5, 5, 5}, "samples");
  });
}

TEST(train_drop_last, dummy_data_has_the_samples_it_is_told) {
  run_threads(1, [&](Group g) {
    const Config config = Config::from_text("c.json", R"({
      "model": {"type": "mlp", "hidden": [8]}, "data": {"type": "dummy", "train_samples": 40},
      "train_batch_size": 16, "training": {"epochs": 2, "drop_last": false}})");
    const Steps seen = train_through(config, g);
    check<Error>(seen.samples == std::vector<int64_t>{16, 16, 8, 16, 16, 8}, "samples");
  });
}

TEST(train_drop_last, loader_threads_change_no_bit) {
  Folders f;
  NamedTensors first;
  for (int workers : {0, 1, 3})
    run_threads(1, [&](Group g) {
      const Config config = tiny_gpt(f.corpus, {fmt::format("data.workers={}", workers)});
      const NamedTensors now = train_on(config, g, 6).weights;
      if (first.empty()) first = now;
      check<Error>(first_difference(now, first).empty(), "{} workers", workers);
    });
}

}  // namespace drop_last_test
