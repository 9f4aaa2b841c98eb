// SPDX-License-Identifier: Apache-2.0
// A DistributedSampler in a checkpoint: an epoch that is interrupted and resumed, on as many ranks
// or on others, has each sample once, whatever the loaders' workers had drawn ahead.
#include <gtest/gtest.h>
#include <torch/data.h>

#include <map>
#include <mutex>

#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/comm/start/run.h"
#include "trireme/data/counted.h"

namespace trireme::testing::sampler_state_test {
namespace {

constexpr size_t kSamples = 96, kBatch = 4;

struct Numbers : torch::data::datasets::Dataset<Numbers, int64_t> {
  explicit Numbers(size_t n) : size_(n) {}
  int64_t get(size_t index) override { return static_cast<int64_t>(index); }
  torch::optional<size_t> size() const override { return size_; }
  size_t size_;
};

using Seen = std::map<std::pair<size_t, int64_t>, int>;  // epoch, sample → how often

/// Ranks take `batches` batches each, from where the run folder is if it is anywhere, and save.
void train(int ranks, const std::string& run_dir, int batches, Seen& seen,
           size_t samples = kSamples, DistributedSamplerOptions options = {}, size_t workers = 2) {
  std::mutex mutex;
  run_threads(
      ranks,
      [&](Group g) {
        DistributedSampler sampler(samples, static_cast<size_t>(g.size()),
                                   static_cast<size_t>(g.rank()), options);
        int64_t step = 0;
        const StateWalk state =
            all_of({trireme::state_of(sampler), trireme::state_of("step", step)});
        load_if_any(run_dir, state, g);
        auto loader = torch::data::make_data_loader(
            Numbers(samples), sampler, torch::data::DataLoaderOptions(kBatch).workers(workers));
        for (int taken = 0; taken < batches;)
          for (auto& batch : counted(*loader, sampler)) {
            {
              std::lock_guard lock(mutex);
              for (int64_t sample : batch) ++seen[{sampler.epoch(), sample}];
            }
            ++step;
            if (++taken < batches) continue;
            save(run_dir, step, state, g);
            break;
          }
      },
      std::chrono::seconds(60));
}

DistributedSampler one_rank(DistributedSamplerOptions options, size_t size = kSamples) {
  return {size, 1, 0, options};
}

}  // namespace

TEST(data_sampler_state, an_interrupted_epoch_has_each_sample_once_on_any_numbers_of_ranks) {
  for (const std::vector<int>& worlds :
       {std::vector<int>{2, 2, 2}, {2, 4, 1}, {4, 1, 2}, {1, 2, 4}}) {
    PrivateFolder folder;
    Seen seen;
    size_t taken = 0;
    // Each run takes 32 samples: the three of them an epoch.
    for (int round = 0; round < 2; ++round)
      for (const int world : worlds) {
        train(world, folder.path(), static_cast<int>(32 / kBatch) / world, seen);
        taken += 32;
        EXPECT_EQ(seen.size(), taken);
      }
    for (const auto& [sample, times] : seen) EXPECT_EQ(times, 1);
    EXPECT_EQ(seen.size(), 2 * kSamples);
    EXPECT_EQ(seen.rbegin()->first.first, 1u) << "two epochs, 0 and 1";
  }
}

// 97 samples: with drop_last an epoch leaves out its last one on 2, 3 and 4 ranks; without, it has
// 1, 2 or 3 of its first ones twice.
TEST(data_sampler_state, an_epoch_that_ranks_do_not_divide_ends_as_one_of_the_last_ranks_alone) {
  constexpr size_t kOdd = 97;
  for (const bool drop_last : {false, true})
    for (const int last : {1, 2, 3, 4}) {
      const DistributedSamplerOptions options{.drop_last = drop_last};
      const auto world = static_cast<size_t>(last);
      const size_t each = drop_last ? kOdd / world : (kOdd + world - 1) / world;
      const auto batches_in = [](size_t samples) {
        return static_cast<int>((samples + kBatch - 1) / kBatch);
      };
      Seen calm;
      train(last, PrivateFolder().path(), 2 * batches_in(each), calm, kOdd, options, 0);
      for (size_t epoch : {0, 1}) {
        size_t once = 0, twice = 0;
        for (const auto& [sample, times] : calm)
          if (sample.first == epoch) (times == 1 ? once : twice) += 1;
        EXPECT_EQ(twice, drop_last ? 0 : each * world - kOdd);
        EXPECT_EQ(once + 2 * twice, each * world);
      }
      for (const int first : {1, 2, 3, 4})
        for (const size_t taken : {48, 96}) {  // of all ranks together
          PrivateFolder folder;
          Seen seen;
          train(first, folder.path(), static_cast<int>(taken / kBatch) / first, seen, kOdd,
                options);
          EXPECT_EQ(seen.size(), taken);
          // Ranks that had dropped the last sample were at the end of their epoch.
          const bool over = drop_last && first > 1 && taken == 96;
          const size_t rest = over ? 0 : each - taken / world;
          train(last, folder.path(), batches_in(rest) + batches_in(each), seen, kOdd, options, 0);
          Seen expected = calm;
          if (over && last == 1) {
            DistributedSampler order = one_rank(options, kOdd);
            expected.erase({0, static_cast<int64_t>(order.next(kOdd)->back())});
          }
          EXPECT_EQ(seen, expected) << first << " ranks, then " << last << ", after " << taken
                                    << " samples, drop_last " << drop_last;
        }
    }
}

TEST(data_sampler_state, a_sampler_of_another_order_is_refused_by_what_differs) {
  PrivateFolder folder;
  DistributedSampler sampler = one_rank({});
  save(folder.path(), 0, trireme::state_of(sampler));
  const auto refused = [&](DistributedSampler other) {
    return refusal([&] { load(folder.path(), trireme::state_of(other)); });
  };
  EXPECT_EQ(refused(one_rank({})), "");
  EXPECT_TRUE(has(refused(one_rank({.seed = 3})), "'sampler.seed' is '0' there and '3' here"));
  EXPECT_TRUE(has(refused(one_rank({.shuffle = false})), "'sampler.shuffle' is 'true' there"));
  EXPECT_TRUE(has(refused(one_rank({.drop_last = true})), "'sampler.drop_last' is 'false' there"));
  EXPECT_TRUE(has(refused(one_rank({}, 95)), "'sampler.size' is '96' there and '95' here"));
}

TEST(data_sampler_state, a_place_that_is_none_of_so_many_ranks_is_refused) {
  PrivateFolder folder;
  DistributedSampler sampler = one_rank({});
  sampler.reset();
  sampler.next(5);
  sampler.consumed(5);
  save(folder.path(), 0, trireme::state_of(sampler));
  DistributedSampler half(kSamples, 2, 0);
  EXPECT_TRUE(has(refusal([&] { load(folder.path(), trireme::state_of(half)); }),
                  "which 2 ranks cannot continue from"));
}

TEST(data_sampler_state, what_nobody_has_counted_is_not_saved_and_can_be_loaded_over) {
  PrivateFolder folder;
  DistributedSampler sampler = one_rank({});
  save(folder.path(), 0, trireme::state_of(sampler));
  sampler.reset();
  sampler.next(5);
  EXPECT_TRUE(has(refusal([&] { save(folder.path(), 1, trireme::state_of(sampler)); }),
                  "counted(*loader, sampler)"));
  EXPECT_EQ(load(folder.path(), trireme::state_of(sampler)).step, 0);
  EXPECT_EQ(sampler.index(), 0u);
}

}  // namespace trireme::testing::sampler_state_test
