// SPDX-License-Identifier: Apache-2.0
// Sequences of different lengths in a training run.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/refusals.h"
#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/data/token_steps.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/trainer.h"

namespace token_batches_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

std::string write_documents(const PrivateFolder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    for (int k = 0; k <= i * 7 % 11; ++k) text += static_cast<char>('a' + (i + k) % 26);
    text += "\n\n";
  }
  write_file_atomic(folder / "text.txt", text);
  return folder / "text.txt";
}

Config documents(const std::string& path, Sets sets = {}) {
  sets.insert(sets.begin(), {"data.type=documents", "model.dropout=0", "model.layers=1"});
  return tiny_gpt(path, sets);
}

Sets budget(int tokens, Sets more = {}) {
  const std::string section = "data_efficiency.data_sampling.dynamic_batching.";
  Sets sets = {"data_efficiency.enabled=true", "data_efficiency.data_sampling.enabled=true",
               section + "enabled=true", section + "max_tokens=" + std::to_string(tokens)};
  for (const auto& set : more) sets.push_back(section + set);
  return sets;
}

}  // namespace

TEST(train_token_batches, padding_weighs_nothing) {
  PrivateFolder folder;
  const Config config = documents(write_documents(folder));
  run_threads(1, [&](Group g) {
    trireme::Run run = build_run(config, g);
    const MicroBatch together = run.train_data->get({0, 5, 9, 2});
    double sum = 0;
    int64_t weight = 0;
    for (const int64_t id : {0, 5, 9, 2}) {
      const MicroBatch alone = run.train_data->get({id});
      sum += run.model->loss_sum(run.compute->forward(alone.input), alone.target).item<double>();
      weight += alone.weight;
    }
    const double loss =
        run.model->loss_sum(run.compute->forward(together.input), together.target).item<double>();
    EXPECT_NEAR(loss, sum, 1e-5 * sum);
    EXPECT_EQ(together.weight, weight);
  });
}

TEST(train_token_batches, documents_train_the_same_on_any_number_of_ranks) {
  PrivateFolder folder;
  const std::string path = write_documents(folder);
  for (const Sets& sets : {Sets{}, budget(64, {"sequence_picking_order=random"})}) {
    Sets all = sets;
    all.push_back("optimizer.type=SGD");
    auto on = [&](int ranks) {
      Sets these = all;
      these.push_back("gradient_accumulation_steps=" + std::to_string(4 / ranks));
      return train_on_threads(ranks, documents(path, these), 5).at(0);
    };
    const Trained one = on(1);
    for (const int ranks : {2, 4}) {
      const Trained many = on(ranks);
      EXPECT_LT(relative_distance(many.weights, one.weights), 2e-6) << ranks;
      for (size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5) << ranks;
    }
  }
}

TEST(train_token_batches, the_rate_follows_the_samples_of_each_step) {
  PrivateFolder folder;
  const std::string path = write_documents(folder);
  for (const std::string method : {"linear", "sqrt", "none"}) {
    const Config config = documents(path, [&] {
      Sets sets = budget(64, {"lr_scaling_method=" + method});
      sets.push_back("scheduler.type=constant");
      sets.push_back("scheduler.params.warmup_num_steps=0");
      return sets;
    }());
    run_threads(2, [&](Group g) {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      std::set<int64_t> sizes;
      for (int i = 0; i < 6; ++i) {
        const int64_t samples = run.plan->samples(i);
        sizes.insert(samples);
        const StepReport r = train_step(run);
        EXPECT_EQ(r.samples, samples);
        EXPECT_DOUBLE_EQ(r.lr, 3e-3 * batch_lr_factor(method, static_cast<double>(samples), 16));
      }
      EXPECT_GT(sizes.size(), 1u) << "every step has as many";
    });
  }
}

TEST(train_token_batches, an_epoch_reads_every_document_once_within_the_budget) {
  PrivateFolder folder;
  const Config config = documents(write_documents(folder), [] {
    Sets sets = budget(48, {"sequence_picking_order=seqlen"});
    sets.push_back("data.validation_fraction=0");
    return sets;
  }());
  std::mutex mutex;
  std::map<int64_t, int> seen;
  int64_t documents_there = 0, dropped = 0;
  run_threads(2, [&](Group g) {
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    std::vector<int64_t> mine;
    for (int64_t s = 0; s < run.plan->first_step_of(1); ++s)
      for (const auto& micro : next_batch(run)) {
        EXPECT_LE(micro.input.numel(), 48);
        mine.insert(mine.end(), micro.samples.begin(), micro.samples.end());
      }
    std::lock_guard lock(mutex);
    for (const int64_t id : mine) ++seen[id];
    documents_there = run.train_data->size();
    const TokenSteps& steps = dynamic_cast<const TokenPlan&>(*run.plan).steps();
    dropped = steps.batches().size() % steps.per_step();
  });
  for (const auto& [id, times] : seen) EXPECT_EQ(times, 1) << id;
  if (dropped == 0) {
    EXPECT_EQ(static_cast<int64_t>(seen.size()), documents_there);
  }
  EXPECT_GT(static_cast<int64_t>(seen.size()), documents_there * 8 / 10);
}

TEST(train_token_batches, a_run_of_them_is_resumed_with_the_same_bits_and_no_other_budget) {
  PrivateFolder folder;
  const std::string path = write_documents(folder);
  auto config = [&](int tokens, int steps) {
    Sets sets = budget(tokens);
    sets.push_back("training.steps=" + std::to_string(steps));
    sets.push_back("scheduler.params.total_num_steps=8");
    return documents(path, sets);
  };
  auto go = [&](const Config& c, const std::string& to, std::optional<std::string> from) {
    run_threads(2, [&](Group g) {
      TrainOptions options;
      options.run_dir = to;
      options.resume = from;
      train(c, g, options);
    });
  };
  go(config(64, 8), folder / "whole", {});
  go(config(64, 4), folder / "half", {});
  go(config(64, 8), folder / "half", folder / "half");
  auto model = [&](const std::string& run) {
    return read_file(folder / (run + "/step-00000008/model.safetensors"));
  };
  EXPECT_TRUE(model("half") == model("whole"));
  const std::string text = refusal([&] { go(config(32, 9), folder / "half", folder / "half"); });
  EXPECT_TRUE(has(text, "in 64 tokens") && has(text, "in 32 tokens")) << text;
}

TEST(train_token_batches, what_does_not_go_together_is_refused_by_name) {
  auto refused = [](Sets sets) {
    return refusal([&] { Config::from_text("c.json", "{}", sets); });
  };
  EXPECT_TRUE(has(refused(budget(64)), "set data.type to documents"));
  Sets sets = budget(64);
  sets.pop_back();
  sets.push_back("data.type=documents");
  EXPECT_TRUE(
      has(refused(sets), "needs data_efficiency.data_sampling.dynamic_batching.max_tokens"));
  sets = budget(64);
  for (const char* s : {"data.type=documents", "balance.mode=throughput"}) sets.push_back(s);
  EXPECT_TRUE(has(refused(sets), "balance.mode"));
  EXPECT_TRUE(
      has(refused({"data_efficiency.enabled=true", "data_efficiency.data_routing.enabled=true"}),
          "data_routing"));
  EXPECT_EQ(refused({"data_efficiency.enabled=false",
                     "data_efficiency.data_sampling.dynamic_batching.max_tokens=5"}),
            "");
}

}  // namespace token_batches_test
