// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/gradients/gradient_noise.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/small_runs.h"
#include "trireme/base/check.h"
#include "trireme/train/trainer.h"

namespace gradient_noise_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Sets measured(Sets sets) {
  sets.push_back("monitor.gradient_noise_scale=true");
  return sets;
}

struct Seen {
  double trace = 0, signal = 0;
  NamedTensors weights;
};

Seen see(const Config& config, Group g, int64_t steps) {
  trireme::Run run = build_run(config, g);
  start_data(run, config);
  for (int64_t i = 0; i < steps; ++i) train_step(run);
  Seen seen;
  if (const auto* noise = run.find<GradientNoise>()) {
    EXPECT_EQ(noise->noise().steps(), steps);
    seen.trace = noise->noise().trace();
    seen.signal = noise->noise().signal();
  }
  seen.weights = weights_of(run);
  return seen;
}

std::string refusal(const Config& config) {
  std::string text;
  run_threads(1, [&](Group g) {
    try {
      build_run(config, g);
    } catch (const UsageError& e) {
      text = e.what();
    }
  });
  return text;
}

}  // namespace

TEST(train_gradient_noise, ranks_and_micro_batches_of_the_same_samples_tell_the_same) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (const std::string model : {"gpt", "mlp"}) {
    auto config = [&](int micro, int accumulation) {
      const Sets sets = measured({fmt::format("train_micro_batch_size_per_gpu={}", micro),
                                  fmt::format("gradient_accumulation_steps={}", accumulation)});
      return model == "gpt" ? tiny_gpt(corpus, sets) : digits(model, sets);
    };
    Seen ranks, micro;
    run_threads(4, [&](Group g) {
      Seen mine = see(config(4, 1), g, 3);
      if (g.rank() == 0) ranks = mine;
    });
    run_threads(1, [&](Group g) { micro = see(config(4, 4), g, 3); });
    EXPECT_GT(ranks.trace, 0);
    EXPECT_NEAR(micro.trace / ranks.trace, 1, 1e-3) << model;
    EXPECT_NEAR(micro.signal / ranks.signal, 1, 1e-3) << model;
  }
}

TEST(train_gradient_noise, every_rank_has_the_same_estimate_and_the_weights_their_bits) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (const Sets& sets : {Sets{}, {"training.reproducible=true"}}) {
    const auto plain = train_on_threads(2, tiny_gpt(corpus, sets), 3);
    std::vector<Seen> seen(2);
    run_threads(2, [&](Group g) {
      seen[static_cast<size_t>(g.rank())] = see(tiny_gpt(corpus, measured(sets)), g, 3);
    });
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(first_difference(seen[r].weights, plain[r].weights), "");
      EXPECT_EQ(seen[r].trace, seen[0].trace);
    }
  }
  const Sets sets{"gradient_accumulation_steps=2"};
  const auto plain = train_on_threads(1, tiny_gpt(corpus, sets), 3);
  run_threads(1, [&](Group g) {
    EXPECT_EQ(
        first_difference(see(tiny_gpt(corpus, measured(sets)), g, 3).weights, plain[0].weights),
        "");
  });
}

TEST(train_gradient_noise, one_part_is_refused_with_what_to_do) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const std::string one = refusal(tiny_gpt(corpus, measured({})));
  EXPECT_NE(one.find("1 rank with 1 micro-batch"), std::string::npos) << one;
  EXPECT_NE(one.find("gradient_accumulation_steps"), std::string::npos) << one;
  const std::string tree = refusal(
      tiny_gpt(corpus, measured({"gradient_accumulation_steps=2", "training.reproducible=true"})));
  EXPECT_NE(tree.find("training.reproducible"), std::string::npos) << tree;
}

TEST(train_gradient_noise, is_in_every_line_of_the_metrics_and_in_the_last_words) {
  PrivateFolder folder;
  const Config config = tiny_gpt(write_corpus(folder), measured({"training.steps=3"}));
  std::vector<std::string> said;
  run_threads(2, [&](Group g) {
    TrainOptions options;
    options.run_dir = folder.path();
    options.say = [&](const std::string& line) { said.push_back(line); };  // rank 0 alone
    train(config, g, options);
  });
  std::istringstream text(read_file(folder / "metrics.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("step") || json.contains("event")) continue;
    ++steps;
    ASSERT_TRUE(json.contains("gradient_noise_scale")) << line;
  }
  EXPECT_EQ(steps, 3);
  ASSERT_FALSE(said.empty());
  EXPECT_NE(said.back().find("gradient noise scale: "), std::string::npos) << said.back();
}

}  // namespace gradient_noise_test
