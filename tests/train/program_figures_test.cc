// SPDX-License-Identifier: Apache-2.0
// What programs report of held-out data, and how often their ranks add gradients up.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "tests/train/program_runs.h"
#include "trireme/comm/objects.h"
#include "trireme/grad/reducer.h"

namespace program_figures_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Reports the median of its losses, which is no mean of samples.
struct WithMedian : DigitsProgram {
  void evaluate(Network& net, const MicroBatch& b, HeldOutSums& sums) override {
    const LossTerms terms = loss(net, b);
    add_terms(terms, b, sums);
    sums.add("held_out_nothing", 0, 0);
    if (!sums.counts()) return;
    for (const int64_t sample : b.samples) seen_.push_back(static_cast<double>(sample));
  }
  void evaluated(HeldOutSums& sums, Group group) override {
    std::vector<double> all;
    for (const auto& of_rank : all_gather_object(group, std::exchange(seen_, {})))
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    std::sort(all.begin(), all.end());
    sums.add("held_out_samples", static_cast<double>(all.size()), 1);
    sums.add("held_out_median", all.at(all.size() / 2), 1);
  }
  std::vector<double> seen_;
};

std::map<std::string, double> figures(int ranks, const Sets& sets) {
  const Config config = config_for<WithMedian>(sets);
  std::map<std::string, double> of_rank_0;
  std::mutex mutex;
  run_threads(
      ranks,
      [&](Group g) {
        WithMedian program;
        Trainer trainer(make_trainer(program, config, g));
        std::map<std::string, double> mine;
        for (int again = 0; again < 2; ++again)
          for (const auto& s : trainer.impl().evaluate()) mine[s.name] = s.sum / s.weight;
        std::lock_guard lock(mutex);
        if (of_rank_0.empty()) of_rank_0 = mine;
        EXPECT_EQ(mine, of_rank_0) << "every rank has the same";
      },
      std::chrono::seconds(60));
  return of_rank_0;
}

}  // namespace

TEST(train_program_figures, those_that_are_no_means_are_of_all_ranks_samples_together) {
  const auto one = figures(1, {});
  EXPECT_EQ(one.at("held_out_samples"), 50);
  EXPECT_EQ(one.at("held_out_median"), 25);
  EXPECT_EQ(one.count("held_out_nothing"), 0u) << "a mean of nothing is not reported";
  for (const int ranks : {2, 4})
    for (const char* stage : {"0", "3"}) {
      // At stage 3 some ranks run micro-batches that count elsewhere.
      const auto many = figures(
          ranks, {"train_micro_batch_size_per_gpu=4", "zero_optimization.stage=" + Sets{stage}[0]});
      ASSERT_EQ(many.size(), one.size());
      for (const auto& [name, value] : one)
        EXPECT_NEAR(many.at(name), value, 1e-4) << name << ranks << stage;
    }
}

// Defect 3 of the question-answering recipe: each of 128 micro-batches was reduced.
TEST(train_program_figures, a_step_reduces_each_bucket_once_whatever_its_accumulation) {
  const Config config = config_for<DigitsProgram>({"gradient_accumulation_steps=8"});
  run_threads(
      2,
      [&](Group g) {
        DigitsProgram program;
        Trainer trainer(make_trainer(program, config, g));
        Trainer::Impl& t = trainer.impl();
        start_data(t.first(), config);
        EXPECT_EQ(t.first().batches.accumulation, 8);
        const Reducer& reducer = t.first().gradients->reducer();
        const int64_t before = reducer.stats().launches;
        for (int i = 0; i < 3; ++i) t.take_step({});
        EXPECT_EQ(reducer.stats().rounds, 3);
        EXPECT_EQ(reducer.stats().launches - before,
                  3 * static_cast<int64_t>(reducer.buckets().size()));
      },
      std::chrono::seconds(60));
}

}  // namespace program_figures_test
