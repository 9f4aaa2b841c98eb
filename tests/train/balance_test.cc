// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/balance/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/support/refusals.h"
#include "tests/train/scripted_speed.h"
#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/config/engine_keys.h"
#include "trireme/train/report/step_metrics.h"
#include "trireme/train/saving.h"
#include "trireme/train/trainer.h"

namespace balance_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Config balanced(Sets sets = {}) {
  sets.insert(sets.begin(), {"balance.mode=throughput", "balance.every=3"});
  return digits("mlp", sets);
}

struct Started {
  Started(const Config& config, Group group, int64_t per_sample) : run(build_run(config, group)) {
    speed = script_speed(run, per_sample);
    start_data(run, config);
  }
  trireme::Run run;
  std::shared_ptr<Speed> speed;
};

}  // namespace

TEST(train_balance, shares_follow_the_speed_of_ranks) {
  run_threads(2, [](Group g) {
    Started s(balanced(), g, g.rank() == 0 ? 1000 : 3000);
    EXPECT_EQ(s.run.find<Balance>()->shares(0), (Shares{8, 8}));
    std::string news;
    std::vector<Shares> shares;
    for (int i = 0; i < 12; ++i) {
      const StepReport r = train_step(s.run);
      EXPECT_EQ(r.samples, 16);
      EXPECT_EQ(r.weight, 16);
      shares.push_back(s.run.find<Balance>()->shares(i));
      const std::string text = s.run.find<Balance>()->news();
      if (!text.empty()) news += text;
    }
    // Measured in steps 0 to 2; steps 3 and 4 may be under way in a loader.
    for (int i = 0; i < 5; ++i) EXPECT_EQ(shares[static_cast<size_t>(i)], (Shares{8, 8})) << i;
    for (int i = 5; i < 12; ++i) EXPECT_EQ(shares[static_cast<size_t>(i)], (Shares{12, 4})) << i;
    EXPECT_EQ(news,
              "balance: 12/4 samples from step 6 on (were 8/8): rank 1 needs 3.0x the time of the "
              "fastest for a sample");
  });
}

TEST(train_balance, one_slow_step_changes_nothing) {
  run_threads(3, [](Group g) {
    Started s(balanced({"train_batch_size=24"}), g, 1000);
    for (int i = 0; i < 9; ++i) {
      s.speed->per_sample = i % 3 == 1 && g.rank() == i / 3 ? 1000000 : 1000;
      train_step(s.run);
    }
    EXPECT_EQ(s.run.find<Balance>()->shares(8), (Shares{8, 8, 8}));
    EXPECT_EQ(s.run.find<Balance>()->news(), "");
  });
}

TEST(train_balance, limits_of_a_rank_are_kept) {
  run_threads(2, [](Group g) {
    Started s(balanced({"balance.max_share=0.6"}), g, g.rank() == 0 ? 1 : 100);
    for (int i = 0; i < 8; ++i) train_step(s.run);
    EXPECT_EQ(s.run.find<Balance>()->shares(8), (Shares{9, 7}));
  });
  run_threads(2, [](Group g) {
    Started s(balanced({"balance.min_samples=3", "balance.max_samples=[5,2]"}), g,
              g.rank() == 0 ? 1 : 100);
    size_t largest = 0;
    for (int i = 0; i < 8; ++i) {
      for (const auto& micro : s.run.loader->next())
        largest = std::max(largest, micro.samples.size());
    }
    EXPECT_EQ(largest, g.rank() == 0 ? 4u : 2u);  // 8 samples: two of 4, four of 2
  });
}

TEST(train_balance, equal_ranks_train_with_the_bits_of_no_balance) {
  auto train_so = [](const Config& config) {
    NamedTensors weights;
    run_threads(2, [&](Group g) {
      trireme::Run run = build_run(config, g);
      if (run.find<Balance>()) script_speed(run, 1000);
      start_data(run, config);
      for (int i = 0; i < 8; ++i) train_step(run);
      if (g.rank() == 1) weights = weights_of(run);
    });
    return weights;
  };
  const Sets two = {"gradient_accumulation_steps=2"};
  EXPECT_EQ(first_difference(train_so(balanced(two)), train_so(digits("mlp", two))), "");
}

TEST(train_balance, goes_on_after_a_checkpoint_with_the_same_deal_and_bits) {
  const Config config = balanced();
  // Slow ranks change places in the middle of a measurement.
  auto speed = [](int rank, int64_t step) { return (rank == 1) == (step < 10) ? 2700 : 1000; };
  struct End {
    NamedTensors weights;
    std::vector<Shares> shares;
  };
  auto go = [&](const PrivateFolder& folder, int64_t from, int64_t to, bool save) {
    End end;
    run_threads(2, [&](Group g) {
      trireme::Run run = build_run(config, g);
      if (from > 0) load_run(run, folder.path());
      EXPECT_EQ(run.step, from);
      auto rate = script_speed(run, 0);
      start_data(run, config);
      std::vector<Shares> shares;
      while (run.step < to) {
        rate->per_sample = speed(g.rank(), run.step);
        train_step(run);
        shares.push_back(run.find<Balance>()->shares(run.step - 1));
      }
      if (save) {
        save_run(run, folder.path(), 2);
        g.barrier();
      }
      if (g.rank() == 0) end = {weights_of(run), shares};
    });
    return end;
  };
  const End whole = go(PrivateFolder(), 0, 30, false);
  for (const int64_t at : {4, 11, 13}) {
    PrivateFolder folder;
    const End first = go(folder, 0, at, true), second = go(folder, at, 30, false);
    std::vector<Shares> shares = first.shares;
    shares.insert(shares.end(), second.shares.begin(), second.shares.end());
    EXPECT_EQ(shares, whole.shares) << "saved after step " << at;
    EXPECT_EQ(first_difference(second.weights, whole.weights), "") << "saved after step " << at;
  }
  std::set<Shares> distinct(whole.shares.begin(), whole.shares.end());
  EXPECT_GE(distinct.size(), 3u) << "nothing changed";
}

TEST(train_balance, on_other_ranks_a_checkpoint_goes_on_with_equal_shares) {
  PrivateFolder folder;
  const Config config = balanced({"train_batch_size=12"});
  run_threads(2, [&](Group g) {
    Started s(config, g, g.rank() == 0 ? 1000 : 3000);
    for (int i = 0; i < 7; ++i) train_step(s.run);
    EXPECT_EQ(s.run.find<Balance>()->shares(7), (Shares{9, 3}));
    save_run(s.run, folder.path(), 2);
    g.barrier();
  });
  run_threads(3, [&](Group g) {
    trireme::Run run = build_run(config, g);
    load_run(run, folder.path());
    EXPECT_EQ(run.find<Balance>()->shares(7), (Shares{4, 4, 4}));
    EXPECT_EQ(news_of(run), std::vector<std::string>{"balance: the checkpoint is of other ranks: "
                                                     "starting again with 4/4/4 samples each"})
        << "no rank had found a limit of memory that could be lost";
  });
}

TEST(train_balance, metrics_and_notes_tell_the_shares) {
  PrivateFolder folder;
  const Config config = balanced({"training.steps=4", "checkpoint.at_end=false"});
  std::vector<std::string> said;
  run_threads(2, [&](Group g) {
    TrainOptions options;
    options.run_dir = folder.path();
    if (g.rank() == 0) options.say = [&](const std::string& text) { said.push_back(text); };
    train(config, g, options);
  });
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(has(said[0], "shares follow throughput, initially 8/8")) << said[0];
  std::istringstream lines(read_file(folder / "metrics.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("event")) continue;
    ++steps;
    EXPECT_EQ(json["samples_rank0"].get<int>() + json["samples_rank1"].get<int>(), 16);
  }
  EXPECT_EQ(steps, 4);
}

TEST(train_balance, stage_1_takes_unequal_shares_to_the_same_weights) {
  const Sets sets = {"zero_optimization.stage=1", "balance.memory_backoff=false"};
  NamedTensors weights[2];
  for (const bool unequal : {false, true})
    run_threads(2, [&](Group g) {
      Started s(balanced(sets), g, unequal && g.rank() == 0 ? 3000 : 1000);
      for (int i = 0; i < 10; ++i) train_step(s.run);
      EXPECT_EQ(s.run.find<Balance>()->shares(9), unequal ? (Shares{4, 12}) : (Shares{8, 8}));
      if (g.rank() == 0) weights[unequal] = weights_of(s.run);
    });
  EXPECT_LT(relative_distance(weights[1], weights[0]), 1e-6);
}

namespace {
/// Batches of one shape.
class Fixed : public DataSource {
 public:
  explicit Fixed(std::shared_ptr<const DataSource> inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  MicroBatch get(const std::vector<int64_t>& ids) const override { return inner_->get(ids); }
  std::string describe() const override { return "ready batches"; }
  int64_t fixed_rows() const override { return 8; }

 private:
  std::shared_ptr<const DataSource> inner_;
};
}  // namespace

TEST(train_balance, data_that_cannot_vary_is_refused_on_every_rank) {
  std::vector<std::string> said(3);
  const Config config = balanced({"train_batch_size=24"});
  run_threads(3, [&](Group g) {
    trireme::Run run = build_run(config, g);
    run.train_data = std::make_shared<Fixed>(run.train_data);
    said[static_cast<size_t>(g.rank())] = refusal([&] { start_data(run, config); });
  });
  for (const auto& text : said)
    EXPECT_TRUE(has(text, "ready batches") && has(text, "cannot vary")) << text;
}

TEST(train_balance, what_does_not_fit_the_ranks_is_refused_on_every_rank) {
  auto refused = [](const Sets& sets, const std::string& part) {
    std::vector<std::string> said(4);
    run_threads(4, [&](Group g) {
      said[static_cast<size_t>(g.rank())] = refusal([&] { build_run(balanced(sets), g); });
    });
    for (const auto& text : said) EXPECT_TRUE(has(text, part)) << text;
  };
  refused({"balance.min_samples=5"}, "balance.min_samples is 5, and a step of 16 samples");
  refused({"balance.max_share=0.2"}, "balance.max_share 0.2 allows a rank 3 of 16 samples");
  refused({"balance.max_samples=[4,4]"}, "lists 2 numbers for 4 ranks");
}

TEST(train_balance, an_engine_refuses_it) {
  const auto refusals = engine_refusals(balanced());
  EXPECT_TRUE(std::any_of(refusals.begin(), refusals.end(), [](const std::string& text) {
    return has(text, "balance.mode is \"throughput\", and initialize() steps on the batches");
  }));
}

}  // namespace balance_test
