// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/data/sources/dummy.h"

namespace loader_test {

using namespace trireme;

namespace {
Batch numbered(int64_t step) { return {MicroBatch{at::Tensor(), at::Tensor(), {step}, 1}}; }

LoaderOptions with_threads(int threads, int64_t first_step = 0) {
  LoaderOptions o{.first_step = first_step, .background = threads > 0};
  if (threads > 0) o.threads = o.depth = threads;
  return o;
}

class data_loader : public ::testing::TestWithParam<int> {};
}  // namespace

TEST_P(data_loader, batches_come_in_order_from_the_first_step) {
  PrefetchingLoader loader(numbered, with_threads(GetParam(), 5));
  for (int64_t step = 5; step < 50; ++step) {
    EXPECT_EQ(loader.step(), step);
    EXPECT_EQ(loader.next()[0].samples[0], step);
  }
}

TEST_P(data_loader, an_error_comes_at_its_step_and_again) {
  PrefetchingLoader loader(
      [](int64_t step) {
        if (step == 3) throw Corrupt("step three");
        return numbered(step);
      },
      with_threads(GetParam()));
  for (int i = 0; i < 3; ++i) loader.next();
  EXPECT_THROW(loader.next(), Corrupt);
  EXPECT_THROW(loader.next(), Corrupt);
  EXPECT_EQ(loader.step(), 3);
}

TEST_P(data_loader, can_be_dropped_at_any_time) {
  for (int steps = 0; steps < 4; ++steps) {
    PrefetchingLoader loader(numbered, with_threads(GetParam()));
    for (int i = 0; i < steps; ++i) loader.next();
  }
}

TEST_P(data_loader, can_be_moved) {
  PrefetchingLoader a(numbered, with_threads(GetParam()));
  a.next();
  PrefetchingLoader b = std::move(a);
  EXPECT_EQ(b.next()[0].samples[0], 1);
}

INSTANTIATE_TEST_SUITE_P(, data_loader, ::testing::Values(0, 1, 4),
                         [](const auto& info) { return "threads_" + std::to_string(info.param); });

// data.workers 3: three batches are being made at once, the first of them last.
TEST(data_loader_thread, several_make_batches_at_once_and_they_come_in_order) {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int64_t> begun;
  PrefetchingLoader loader(
      [&](int64_t step) {
        std::unique_lock lock(mutex);
        begun.insert(step);
        changed.notify_all();
        if (step == 0) {
          EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60),
                                       [&] { return begun.contains(1) && begun.contains(2); }));
        }
        return numbered(step);
      },
      with_threads(3));
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(loader.next()[0].samples[0], step);
    std::lock_guard lock(mutex);
    EXPECT_LE(*begun.rbegin(), step + 3) << "no further ahead than its depth";
  }
}

TEST(data_loader_thread, more_threads_than_batches_ahead_are_refused) {
  EXPECT_THROW(PrefetchingLoader(numbered, {.background = true, .threads = 3, .depth = 2}),
               UsageError);
  EXPECT_THROW(PrefetchingLoader(numbered, {.background = true, .threads = 0}), UsageError);
}

TEST(data_loader_thread, prepares_its_depth_ahead_and_no_more) {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t made = 0;
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> on_caller = false;
  PrefetchingLoader loader(
      [&](int64_t step) {
        on_caller = on_caller || std::this_thread::get_id() == caller;
        std::lock_guard lock(mutex);
        ++made;
        changed.notify_all();
        return numbered(step);
      },
      {.background = true, .depth = 2});
  for (int taken = 0; taken < 3; ++taken) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(
        changed.wait_for(lock, std::chrono::seconds(20), [&] { return made == taken + 2; }));
    lock.unlock();
    loader.next();
  }
  EXPECT_FALSE(on_caller);
  std::lock_guard lock(mutex);
  EXPECT_LE(made, 5);
}

TEST(data_loader_thread, a_source_that_hangs_is_a_timeout) {
  std::mutex gate;
  std::unique_lock closed(gate);
  PrefetchingLoader loader(
      [&](int64_t step) {
        std::lock_guard wait(gate);
        return numbered(step);
      },
      {.background = true, .timeout = std::chrono::milliseconds(20)});
  EXPECT_THROW(loader.next(), Timeout);
  closed.unlock();  // the destructor waits for the batch under way
}

TEST(data_loader_leaves, ranks_read_their_leaves_and_positions_key_them) {
  std::shared_ptr<const DataSource> source = make_dummy({.input_shape = {4}});
  const GlobalBatch plan({.dataset_size = source->size(), .leaf_size = 2, .leaves = 4});
  auto whole = leaf_batches(source, plan, 0, 1)(3);
  ASSERT_EQ(whole.size(), 4u);
  for (int rank = 0; rank < 2; ++rank) {
    auto mine = leaf_batches(source, plan, rank, 2)(3);
    ASSERT_EQ(mine.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const size_t g = static_cast<size_t>(rank) * 2 + i;
      EXPECT_TRUE(mine[i].input.equal(whole[g].input));
      EXPECT_EQ(mine[i].samples, (std::vector<int64_t>{24 + 2 * static_cast<int64_t>(g),
                                                       25 + 2 * static_cast<int64_t>(g)}));
    }
  }
  EXPECT_THROW(leaf_batches(source, plan, 0, 3), UsageError);
  EXPECT_THROW(
      leaf_batches(source, GlobalBatch({.dataset_size = 8, .leaf_size = 2, .leaves = 4}), 0, 1),
      UsageError);
}

TEST(data_loader_leaves, a_rank_without_samples_has_one_that_counts_nothing) {
  std::shared_ptr<const DataSource> source = make_dummy({.input_shape = {4}, .samples = 9});
  const GlobalBatch plan({.dataset_size = 9, .leaf_size = 2, .leaves = 4, .drop_last = false});
  int64_t weight = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto mine = leaf_batches(source, plan, rank, 4)(1);  // one sample is left
    ASSERT_EQ(mine.size(), 1u);
    EXPECT_EQ(mine[0].input.size(0), 1);
    weight += mine[0].weight;
  }
  EXPECT_EQ(weight, 1);
}

}  // namespace loader_test
