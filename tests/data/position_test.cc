// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/position.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/data/global_batch.h"
#include "trireme/data/token_steps.h"

namespace position_test {

using namespace trireme;

namespace {

struct Read {
  int64_t epoch, place, id, number;
};

GlobalBatch plan(int64_t size, int64_t per_step, bool drop_last, const DataOrigin& origin = {}) {
  return GlobalBatch({.dataset_size = size,
                      .leaf_size = per_step,
                      .leaves = 1,
                      .drop_last = drop_last,
                      .origin = origin});
}

// What steps [from, to) of a plan read.
void read(const GlobalBatch& p, int64_t from, int64_t to, std::vector<Read>& all) {
  for (int64_t step = from; step < to; ++step) {
    const Leaf leaf = p.leaf(step, 0);
    const Position at = p.positions().of(step);
    for (size_t i = 0; i < leaf.ids.size(); ++i) {
      const auto k = static_cast<int64_t>(i);
      all.push_back({at.epoch, at.sample + k, leaf.ids[i], leaf.first + k});
    }
  }
}

}  // namespace

// PyTorch's users lose or repeat samples here: a step counter times another batch size is another
// place.
TEST(data_position, with_another_batch_size_an_epochs_samples_are_still_read_once_and_in_order) {
  for (int64_t size = 1; size <= 11; ++size)
    for (int64_t before = 1; before <= size; ++before)
      for (int64_t after = 1; after <= size; ++after)
        for (const bool drop_last : {true, false})
          for (int64_t steps = 0; steps <= 8; ++steps) {
            const GlobalBatch first = plan(size, before, drop_last);
            const DataOrigin origin = first.positions().origin_at(steps);
            const GlobalBatch second = plan(size, after, drop_last, origin);
            const int64_t end = steps + 3 * second.steps_per_epoch();
            std::vector<Read> all;
            read(first, 0, steps, all);
            read(second, steps, end, all);
            std::map<int64_t, int64_t> next;  // epoch → the place behind the last
            std::set<int64_t> numbers;
            for (const Read& r : all) {
              ASSERT_EQ(r.place, next[r.epoch]++) << "no gap and no repetition in an epoch";
              ASSERT_EQ(r.id, plan(size, 1, true).leaf(r.epoch * size + r.place, 0).ids[0])
                  << "the epoch's own order";
              ASSERT_TRUE(numbers.insert(r.number).second) << "keys of dropout are unique";
            }
            const int64_t last = all.back().epoch;
            for (const auto& [epoch, samples] : next) {
              if (epoch == last) continue;
              ASSERT_LT(size - samples, drop_last ? std::max(before, after) : 1)
                  << "size " << size << ", " << before << " then " << after << " at " << steps;
            }
          }
}

TEST(data_position, with_the_same_batch_size_nothing_changes_wherever_a_run_goes_on) {
  for (int64_t size = 1; size <= 9; ++size)
    for (int64_t per_step = 1; per_step <= size; ++per_step)
      for (const bool drop_last : {true, false}) {
        const GlobalBatch whole = plan(size, per_step, drop_last);
        for (int64_t from = 0; from < 8; ++from) {
          const GlobalBatch rest =
              plan(size, per_step, drop_last, whole.positions().origin_at(from));
          for (int64_t step = from; step < from + 8; ++step) {
            ASSERT_EQ(rest.leaf(step, 0).ids, whole.leaf(step, 0).ids);
            ASSERT_EQ(rest.leaf(step, 0).first, whole.leaf(step, 0).first);
            ASSERT_EQ(rest.positions().origin_at(step), whole.positions().origin_at(step));
          }
          for (int64_t epoch = 0; epoch < 4; ++epoch)
            ASSERT_EQ(rest.positions().first_step_of(epoch),
                      std::max(from, whole.positions().first_step_of(epoch)));
        }
      }
}

TEST(data_position, the_first_step_of_an_epoch_is_the_first_that_begins_in_it) {
  for (int64_t size = 1; size <= 8; ++size)
    for (int64_t per_step = 1; per_step <= size; ++per_step)
      for (int64_t sample = 0; sample <= size + 2; ++sample)
        for (const bool drop_last : {true, false}) {
          const StepPositions p(size, per_step, drop_last, {5, {2, sample}, 100});
          for (int64_t epoch = 0; epoch < 6; ++epoch) {
            int64_t step = 5;
            while (p.of(step).epoch < epoch) ++step;
            ASSERT_EQ(p.first_step_of(epoch), step);
          }
          EXPECT_THROW(p.of(4), UsageError) << "before the origin";
        }
}

TEST(data_position, micro_batches_by_tokens_go_on_where_they_were_with_another_number_a_step) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < 37; ++i) lengths.push_back(1 + i * 7 % 11);
  const TokenBatchOptions options{.max_tokens = 24};
  for (int64_t before : {1, 2, 3})
    for (int64_t after : {1, 2, 3})
      for (int64_t steps = 0; steps < 9; ++steps) {
        const TokenSteps first(lengths, options, before);
        const TokenSteps second(lengths, options, after, first.positions().origin_at(steps));
        std::map<int64_t, std::multiset<int64_t>> seen;  // by epoch
        for (int64_t step = 0; step < steps; ++step)
          for (int64_t g = 0; g < before; ++g)
            for (int64_t id : first.ids(step, g)) seen[first.epoch_of(step)].insert(id);
        for (int64_t step = steps; step < steps + second.steps_per_epoch(); ++step)
          for (int64_t g = 0; g < after; ++g)
            for (int64_t id : second.ids(step, g)) seen[second.epoch_of(step)].insert(id);
        for (const auto& [epoch, ids] : seen)
          ASSERT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), ids.size())
              << "a document twice in epoch " << epoch;
      }
}

TEST(data_position, what_cannot_be_a_place_is_corrupt) {
  for (const DataOrigin& bad : {DataOrigin{-1, {0, 0}, 0}, DataOrigin{0, {-1, 0}, 0},
                                DataOrigin{0, {0, INT64_MAX}, 0}, DataOrigin{0, {0, 0}, -5}})
    EXPECT_THROW(bad.check_possible(), Corrupt);
  EXPECT_THROW(plan(8, 2, true, {0, {INT64_MIN, 0}, 0}), Corrupt);
  // Behind the end: the data has become shorter, which is refused by its name elsewhere.
  EXPECT_EQ(plan(8, 2, true, {3, {1, 100}, 0}).positions().of(3), (Position{2, 0}));
}

}  // namespace position_test
