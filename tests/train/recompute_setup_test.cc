// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/recompute_setup.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <numeric>

#include "tests/train/small_runs.h"
#include "trireme/base/check.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/random/random.h"

namespace recompute_setup_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

std::string words_of(const trireme::Run& run) {
  std::string words;
  for (const std::string& part : run.setup) words += part + "; ";
  return words;
}

Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

Sets budget(double mib) { return {fmt::format("training.activation_memory_mb={}", mib)}; }

/// Six blocks on micro-batches of 4 samples.
Config six_blocks(const std::string& corpus, const Sets& sets) {
  return tiny_gpt(corpus, with({"model.layers=6", "train_micro_batch_size_per_gpu=4"}, sets));
}

/// What a forward of the first samples keeps, and the most that it and its backward need.
struct Measured {
  int64_t kept, peak;
};
Measured measure(Run& run, const std::vector<bool>& recompute) {
  run.model->set_recompute(recompute);
  std::vector<int64_t> ids(static_cast<size_t>(run.batches.micro));
  std::iota(ids.begin(), ids.end(), 0);
  const MicroBatch micro = run.train_data->get(ids);
  RandomScope random({42, 0, micro.samples});
  LiveBytes live;
  at::Tensor loss = run.model->loss_sum(run.model->forward(micro.input), micro.target);
  const int64_t kept = live.now();
  torch::autograd::grad({loss}, run.model->parameters());
  return {kept, live.peak()};
}

}  // namespace

TEST(train_recompute_setup, recomputed_blocks_train_to_the_same_bits_on_one_and_two_ranks) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (int n : {1, 2}) {
    const auto plain = train_on_threads(n, six_blocks(corpus, {}), 3);  // dropout is 0.1
    for (const Sets& sets :
         {Sets{"training.recompute_every=1"}, {"training.recompute_every=4"}, budget(0.4)}) {
      const auto again = train_on_threads(n, six_blocks(corpus, sets), 3);
      for (size_t r = 0; r < again.size(); ++r) {
        EXPECT_EQ(first_difference(again[r].weights, plain[r].weights), "") << n << sets[0];
        EXPECT_EQ(first_difference(again[r].first_gradients, plain[r].first_gradients), "");
        EXPECT_EQ(again[r].losses, plain[r].losses);
      }
    }
  }
}

TEST(train_recompute_setup, what_is_measured_predicts_what_any_choice_keeps) {
  PrivateFolder folder;
  const Config config = six_blocks(write_corpus(folder), {});
  run_threads(1, [&](Group g) {
    trireme::Run run = build_run(config, g);
    const ActivationBytes bytes = measure_activations(run);
    for (const auto& b : bytes.blocks) EXPECT_GT(b.kept, 0);
    for (int mask : {0, 1, 3, 7, 32, 56, 63}) {
      std::vector<bool> recompute(6);
      int64_t predicted = bytes.before;
      for (size_t i = 0; i < 6; ++i) {
        recompute[i] = mask >> i & 1;
        if (!recompute[i]) predicted += bytes.blocks[i].kept;
      }
      const Measured m = measure(run, recompute);
      // To the padding of allocations and what recompute() itself notes.
      EXPECT_NEAR(static_cast<double>(m.kept), static_cast<double>(predicted), 0.02 * predicted)
          << mask;
    }
  });
}

TEST(train_recompute_setup, a_budget_takes_the_fewest_blocks_and_says_how_many) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  run_threads(1, [&](Group g) {
    trireme::Run run = build_run(six_blocks(corpus, {}), g);
    EXPECT_EQ(words_of(run).find("recomputed"), std::string::npos);
    const ActivationBytes bytes = measure_activations(run);
    const auto all = static_cast<double>(peak_bytes(bytes, std::vector<bool>(6, false))),
               least = static_cast<double>(peak_bytes(bytes, std::vector<bool>(6, true)));
    EXPECT_LT(least, all / 2);
    constexpr double kMiB = 1048576;
    int64_t before = 7;
    for (double part : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      const double mib = (least + part * (all - least) + 64) / kMiB;
      trireme::Run chosen = build_run(six_blocks(corpus, budget(mib)), g);
      const RecomputePlan plan = plan_recompute(bytes, static_cast<int64_t>(mib * kMiB));
      EXPECT_TRUE(plan.fits);
      EXPECT_LT(plan.blocks, before);
      before = plan.blocks;
      EXPECT_NE(words_of(chosen).find(fmt::format("{} of 6 blocks recomputed", plan.blocks)),
                std::string::npos)
          << words_of(chosen);
      // And the step stays inside of it, but for what backward needs besides activations.
      const Measured m = measure(chosen, plan.recompute);
      EXPECT_LE(static_cast<double>(m.kept), mib * kMiB);
    }
    EXPECT_EQ(before, 0);
  });
}

TEST(train_recompute_setup, ranks_with_unequal_parts_recompute_the_same_blocks) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  // 33 places divide unevenly over 2 ranks; budgets that would tell them apart.
  const Sets cp = {"model.context=33", "parallelism.cp=2"};
  const auto plain = train_on_threads(2, six_blocks(corpus, cp), 2);
  std::vector<std::vector<double>> edges(2);
  run_threads(2, [&](Group g) {
    trireme::Run run = build_run(six_blocks(corpus, cp), g);
    const ActivationBytes bytes = measure_activations(run);
    for (size_t kept = 0; kept <= 6; ++kept) {
      std::vector<bool> recompute(6, true);
      for (size_t i = 0; i < kept; ++i) recompute[i] = false;
      edges[static_cast<size_t>(g.rank())].push_back(
          static_cast<double>(peak_bytes(bytes, recompute)) / 1048576);
    }
  });
  int apart = 0;
  for (size_t kept = 1; kept <= 6; ++kept) {
    const double less = std::min(edges[0][kept], edges[1][kept]),
                 more = std::max(edges[0][kept], edges[1][kept]);
    if (more - less < 1e-4) continue;
    ++apart;
    const auto run =
        train_on_threads(2, six_blocks(corpus, with(cp, budget((less + more) / 2))), 2);
    for (size_t r = 0; r < run.size(); ++r) EXPECT_EQ(run[r].losses, plain[r].losses) << kept;
  }
  EXPECT_GT(apart, 0);
}

TEST(train_recompute_setup, a_budget_that_no_choice_meets_is_refused_with_the_numbers) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  run_threads(2, [&](Group g) {
    try {
      build_run(six_blocks(corpus, budget(0.01)), g);
      ADD_FAILURE() << "was taken";
    } catch (const UsageError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("activation_memory_mb is 0.01"), std::string::npos) << text;
      EXPECT_NE(text.find("MiB for its activations with every block recomputed"), std::string::npos)
          << text;
      EXPECT_NE(text.find("--set"), std::string::npos) << text;
    }
  });
}

TEST(train_recompute_setup, measuring_changes_nothing_of_what_is_trained) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const auto plain = train_on_threads(1, six_blocks(corpus, {}), 2);
  const auto roomy = train_on_threads(1, six_blocks(corpus, budget(1000)), 2);
  EXPECT_EQ(first_difference(roomy[0].weights, plain[0].weights), "");
}

}  // namespace recompute_setup_test
