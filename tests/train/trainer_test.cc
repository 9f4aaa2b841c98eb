// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/train/evaluate.h"

namespace trainer_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

TrainOptions in(const PrivateFolder& folder) {
  TrainOptions options;
  options.run_dir = folder.path();
  return options;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

}  // namespace

TEST(train_trainer, metrics_are_a_start_line_a_line_a_step_and_a_last_line) {
  PrivateFolder folder;
  const Config config = tiny_gpt(write_corpus(folder), {"training.steps=4"});
  std::vector<Trained> same = train_on_threads(2, config, 4);
  run_threads(2, [&](Group g) { train(config, g, in(folder)); });
  const auto lines = lines_of(folder / "metrics.jsonl");
  const Json start = {{"event", "start"},
                      {"schema", 1},
                      {"world", 2},
                      {"seed", 42},
                      {"config_hash", config.hash()}};
  EXPECT_EQ(lines.at(0), start);
  EXPECT_EQ(keys_of(lines[0]), keys_of(start)) << "their order";
  std::vector<Json> steps;
  for (const auto& line : lines)
    if (!line.contains("event")) steps.push_back(line);
  ASSERT_EQ(steps.size(), 4u);
  const std::vector<std::string> issue = {"step",    "loss",          "grad_norm",   "lr",
                                          "step_ms", "samples_per_s", "tokens_per_s"};
  for (size_t i = 0; i < 4; ++i) {
    auto keys = keys_of(steps[i]);
    ASSERT_GE(keys.size(), issue.size());
    keys.resize(issue.size());
    EXPECT_EQ(keys, issue);
    EXPECT_EQ(steps[i]["step"], i + 1);
    EXPECT_EQ(steps[i]["loss"].get<double>(), same[0].losses[i]);
    EXPECT_EQ(steps[i]["grad_norm"].get<double>(), same[0].norms[i]);
    const double seconds = steps[i]["step_ms"].get<double>() / 1e3;
    EXPECT_GT(seconds, 0);
    EXPECT_NEAR(steps[i]["samples_per_s"].get<double>() * seconds, 16, 1e-6) << "over all ranks";
    EXPECT_NEAR(steps[i]["tokens_per_s"].get<double>() * seconds, 16 * 16, 1e-4);
  }
  EXPECT_EQ(lines.back()["event"], "done");
  EXPECT_EQ(lines.back()["steps"], 4);
}

TEST(train_trainer, where_a_step_spent_its_time_is_rank_0s_whoever_started_first) {
  const Config config = digits("mlp", {"training.steps=2"});
  for (int round = 0; round < 8; ++round) {
    PrivateFolder folder;
    run_threads(2, [&](Group g) { train(config, g, in(folder)); });
    for (const auto& line : lines_of(folder / "metrics.jsonl"))
      if (!line.contains("event")) {
        EXPECT_GT(line["compute_ms"].get<double>(), 0) << line;
      }
  }
}

TEST(train_trainer, images_have_no_tokens_and_a_held_out_accuracy) {
  PrivateFolder folder;
  const Config config =
      digits("mlp", {"training.steps=100", "training.eval_every=50", "train_batch_size=32"});
  std::vector<TrainResult> results(2);
  std::vector<std::string> said;
  run_threads(2, [&](Group g) {
    TrainOptions options = in(folder);
    options.say = [&](const std::string& line) { said.push_back(line); };  // rank 0 alone
    results[static_cast<size_t>(g.rank())] = train(config, g, options);
  });
  EXPECT_EQ(results[0].held_out_loss, results[1].held_out_loss);
  EXPECT_LT(results[0].held_out_loss, 2.0) << "10 classes: 2.3 without training";
  EXPECT_EQ(results[0].checkpoint, folder / "step-00000100");
  std::vector<int64_t> evaluated;
  for (const auto& line : lines_of(folder / "metrics.jsonl")) {
    if (!line.contains("event")) {
      EXPECT_EQ(line["tokens_per_s"], 0);
    }
    if (line.value("event", "") != "eval") continue;
    evaluated.push_back(line["step"]);
    EXPECT_GT(line["accuracy"].get<double>(), 0.2);
    EXPECT_GT(line["held_out_loss"].get<double>(), 0);
  }
  EXPECT_EQ(evaluated, (std::vector<int64_t>{50, 100}));
  ASSERT_FALSE(said.empty());
  EXPECT_NE(said[0].find("on 2 ranks"), std::string::npos) << said[0];
}

TEST(train_trainer, a_second_metrics_file_gets_the_same_lines) {
  PrivateFolder folder;
  const Config config =
      digits("mlp", {"training.steps=2", "monitor.metrics=\"" + (folder / "copy") + "\""});
  run_threads(1, [&](Group g) { train(config, g, in(folder)); });
  EXPECT_EQ(read_file(folder / "copy"), read_file(folder / "metrics.jsonl"));
}

TEST(train_trainer, one_rank_that_is_asked_to_stop_stops_all_after_the_same_step) {
  PrivateFolder folder;
  const Config config = digits("mlp", {"training.steps=50", "train_batch_size=12"});
  std::vector<TrainResult> results(3);
  run_threads(3, [&](Group g) {
    TrainOptions options = in(folder);
    int looks = 0;
    options.stop_asked = [&] { return ++looks == 3 && g.rank() == 1; };
    results[static_cast<size_t>(g.rank())] = train(config, g, options);
  });
  for (const auto& r : results) {
    EXPECT_EQ(r.steps, 3);
    EXPECT_TRUE(r.stopped);
  }
  EXPECT_EQ(list_steps(folder.path()), std::vector<int64_t>{3});
  EXPECT_EQ(lines_of(folder / "metrics.jsonl").back()["steps"], 3);
}

TEST(train_trainer, asked_to_stop_in_the_last_step_is_an_ordinary_end) {
  PrivateFolder folder;
  const Config config = digits("mlp", {"training.steps=3"});
  run_threads(2, [&](Group g) {
    TrainOptions options = in(folder);
    int looks = 0;
    options.stop_asked = [&] { return ++looks == 3; };
    const TrainResult r = train(config, g, options);
    EXPECT_FALSE(r.stopped);
    EXPECT_EQ(r.steps, 3);
  });
}

TEST(train_trainer, a_rank_that_fails_ends_the_run_with_its_error) {
  const Config config = digits("mlp", {"training.steps=50"});
  for (const int failing : {0, 1}) {  // while the other waits for it
    PrivateFolder folder;
    try {
      run_threads(2, [&](Group g) {
        TrainOptions options = in(folder);
        int looks = 0;
        options.stop_asked = [&]() -> bool {
          if (++looks == 3 && g.rank() == failing) throw ResourceError("the disk is full");
          return false;
        };
        train(config, g, options);
      });
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("the disk is full"), std::string::npos) << e.what();
    }
    EXPECT_TRUE(list_steps(folder.path()).empty());
  }
}

// The aim of examples/net.json, in a tenth of its steps (measured: 98.6 % after 250).
TEST(train_trainer, the_net_reads_98_percent_of_held_out_digits) {
  PrivateFolder folder;
  const Config config = digits(
      "net", {"training.steps=400", "training.eval_every=400", "train_batch_size=64",
              "data.train_samples=8000", "data.validation_samples=500", "gradient_clipping=10",
              "optimizer.params.weight_decay=0", "scheduler.type=cosine",
              "scheduler.params.warmup_num_steps=50", "scheduler.params.min_lr_ratio=0.01"});
  run_threads(2, [&](Group g) { train(config, g, in(folder)); });
  double accuracy = 0;
  for (const auto& line : lines_of(folder / "metrics.jsonl"))
    if (line.value("event", "") == "eval") accuracy = line["accuracy"];
  EXPECT_GE(accuracy, 0.98);
}

TEST(train_trainer, evaluation_is_the_same_for_any_number_of_ranks) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  auto evaluations = [](int n, const Config& config) {
    std::vector<Evaluation> all(static_cast<size_t>(n));
    run_threads(n, [&](Group g) {
      trireme::Run run = build_run(config, g);
      all[static_cast<size_t>(g.rank())] = evaluate(run);
      EXPECT_TRUE(run.model->is_training());
    });
    return all;
  };
  // Micro-batches of one size on all, so that the held-out batches are the same. 50 digits: the
  // last batch is short.
  for (const bool text : {true, false}) {
    auto config = [&](int n) {
      const Sets sets = {"train_batch_size=" + std::to_string(4 * n),
                         "train_micro_batch_size_per_gpu=4", "training.eval_batches=7"};
      return text ? tiny_gpt(corpus, sets) : digits("mlp", sets);
    };
    const Evaluation one = evaluations(1, config(1)).at(0);
    EXPECT_EQ(one.weight, text ? 7 * 4 * 16 : 50);
    for (int n : {2, 3, 8})
      for (const Evaluation& e : evaluations(n, config(n))) {
        EXPECT_NEAR(e.loss, one.loss, 1e-6 * one.loss) << n << " ranks";
        EXPECT_EQ(e.accuracy, one.accuracy) << n << " ranks";
        EXPECT_EQ(e.weight, one.weight) << n << " ranks";
      }
  }
}

TEST(train_trainer, the_start_line_names_a_device_that_is_not_the_cpu_alone) {
  PrivateFolder folder;
  std::vector<std::string> said;
  run_threads(1, [&](Group g) {
    TrainOptions options;
    options.run_dir = folder.path();
    options.say = [&](const std::string& line) { said.push_back(line); };
    train(digits("mlp", {"training.steps=1", "device=cpu"}), g, options);
  });
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said[0].find("; on "), std::string::npos) << said[0];
}

TEST(train_trainer, a_gpu_that_is_not_there_is_refused_in_one_sentence) {
  if (device_count(at::kCUDA) > 0) GTEST_SKIP() << "LibTorch sees a GPU";
  run_threads(1, [&](Group g) {
    try {
      build_run(digits("mlp", {"device=cuda:1"}), g);
      FAIL() << "device cuda:1 was found";
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()).find("--set: device 'cuda:1': "), 0u) << e.what();
    }
  });
}

TEST(train_trainer, data_that_does_not_fit_the_model_is_refused) {
  run_threads(1, [&](Group g) {
    try {
      build_run(digits("mlp", {"data.type=corpus"}), g);
      ADD_FAILURE() << "built";
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("data.type"), std::string::npos) << e.what();
    }
  });
}

}  // namespace trainer_test
