// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/balance_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "tests/support/refusals.h"
#include "trireme/base/philox.h"

namespace balance_plan_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

int64_t sum(const Shares& s) { return std::accumulate(s.begin(), s.end(), int64_t{0}); }

/// All shares of `samples` with least ≤ n ≤ most.
void each_deal(size_t ranks, int64_t samples, int64_t least, int64_t most, Shares& so_far,
               const std::function<void(const Shares&)>& f) {
  if (so_far.size() == ranks) {
    if (samples == 0) f(so_far);
    return;
  }
  for (int64_t n = least; n <= std::min(most, samples); ++n) {
    so_far.push_back(n);
    each_deal(ranks, samples - n, least, most, so_far, f);
    so_far.pop_back();
  }
}

/// Numbers from 0 to 1 that are the same in every run.
struct Draw {
  uint64_t at = 0;
  double operator()() {
    return static_cast<double>(stable_hash({uint64_t{17}, at++}) >> 11) * 0x1p-53;
  }
};

std::vector<std::vector<double>> speeds(size_t ranks) {
  std::vector<std::vector<double>> all = {std::vector<double>(ranks, 1.0),
                                          std::vector<double>(ranks, 1e-7)};
  Draw draw;
  for (int i = 0; i < 12; ++i) {
    std::vector<double> one;
    for (size_t r = 0; r < ranks; ++r)
      one.push_back(i < 6 ? 1.0 + static_cast<double>(static_cast<int>(draw() * 4))
                          : 0.01 + draw());
    all.push_back(one);
  }
  return all;
}

}  // namespace

TEST(data_balance_plan, is_the_best_there_is_for_every_small_size) {
  for (size_t ranks = 1; ranks <= 4; ++ranks)
    for (const auto& seconds : speeds(ranks))
      for (int64_t samples = static_cast<int64_t>(ranks); samples <= 12; ++samples)
        for (const int64_t least : {int64_t{0}, int64_t{1}})
          for (const int64_t most : {int64_t{0}, (samples + 1) / 2 + 1}) {
            if (most > 0 && most * static_cast<int64_t>(ranks) < samples) continue;
            const BalanceInputs in{seconds, samples, least, most};
            const Shares got = balanced_shares(in);
            ASSERT_EQ(sum(got), samples);
            for (const int64_t n : got) {
              ASSERT_GE(n, least);
              ASSERT_LE(n, most > 0 ? most : samples);
            }
            double best = 1e300;
            Shares so_far;
            each_deal(ranks, samples, least, most > 0 ? most : samples, so_far,
                      [&](const Shares& s) { best = std::min(best, slowest(s, seconds)); });
            ASSERT_DOUBLE_EQ(slowest(got, seconds), best)
                << ranks << " ranks, " << samples << " samples";
          }
}

TEST(data_balance_plan, who_is_slower_never_has_more) {
  for (size_t ranks = 2; ranks <= 6; ++ranks)
    for (const auto& seconds : speeds(ranks))
      for (int64_t samples : {6, 7, 31, 64, 1000}) {
        const Shares got = balanced_shares({seconds, samples, 1, 0});
        for (size_t a = 0; a < ranks; ++a)
          for (size_t b = 0; b < ranks; ++b) {
            if (seconds[a] < seconds[b]) {
              EXPECT_GE(got[a], got[b]);
            }
            if (seconds[a] == seconds[b] && a < b) {
              EXPECT_GE(got[a], got[b]);
              EXPECT_LE(got[a], got[b] + 1);
            }
          }
      }
}

TEST(data_balance_plan, shares_of_a_large_step_are_as_the_speeds) {
  EXPECT_EQ(balanced_shares({{1, 3}, 32, 1, 0}), (Shares{24, 8}));
  EXPECT_EQ(balanced_shares({{1, 3}, 32, 1, 20}), (Shares{20, 12}));
  EXPECT_EQ(balanced_shares({{1e-6, 1}, 32, 2, 0}), (Shares{30, 2}));
  EXPECT_EQ(equal_shares(10, 4), (Shares{3, 3, 2, 2}));
  const Shares many = balanced_shares({{1e-3, 2e-3, 4e-3}, 7'000'000, 1, 0});
  EXPECT_EQ(many, (Shares{4'000'000, 2'000'000, 1'000'000}));
}

TEST(data_balance_plan, noise_below_the_hysteresis_changes_nothing) {
  // Times within ±2 % promise 1 - 0.98/1.02 = 3.9 % at most.
  Draw draw;
  for (size_t ranks = 2; ranks <= 8; ranks *= 2)
    for (const auto& seconds : speeds(ranks)) {
      const Shares now = balanced_shares({seconds, 64, 1, 0});
      for (int i = 0; i < 50; ++i) {
        std::vector<double> noisy = seconds;
        for (double& s : noisy) s *= 0.98 + 0.04 * draw();
        EXPECT_EQ(next_shares(now, {noisy, 64, 1, 0}, 0.05), now);
      }
    }
  EXPECT_EQ(next_shares({16, 16}, {{1, 3}, 32, 1, 0}, 0.05), (Shares{24, 8}));
  EXPECT_EQ(next_shares({16, 16}, {{1, 3}, 32, 1, 0}, 0.6), (Shares{16, 16})) << "gains half";
}

TEST(data_balance_plan,
     measured_again_and_again_with_a_fixed_cost_it_comes_to_rest_at_equal_times) {
  // Seconds = fixed + samples × each: what is measured for a sample depends on the share.
  const std::vector<double> fixed = {0.5, 1.5}, each = {0.1, 0.3};
  Shares now = {32, 32};
  auto time = [&](const Shares& s, size_t r) {
    return fixed[r] + static_cast<double>(s[r]) * each[r];
  };
  int changes = 0;
  for (int i = 0; i < 20; ++i) {
    std::vector<double> seconds;
    for (size_t r = 0; r < 2; ++r) seconds.push_back(time(now, r) / static_cast<double>(now[r]));
    const Shares next = next_shares(now, {seconds, 64, 1, 0}, 0.02);
    changes += next != now;
    now = next;
  }
  EXPECT_LE(changes, 5);
  EXPECT_NEAR(time(now, 0), time(now, 1), 0.45) << now[0] << "/" << now[1];
}

TEST(data_balance_plan, cuts_a_share_into_few_and_equal_micro_batches) {
  EXPECT_EQ(cut_share(24, 16), (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(cut_share(17, 8), (std::vector<int64_t>{6, 6, 5}));
  EXPECT_EQ(cut_share(0, 8), std::vector<int64_t>{});
  for (int64_t n = 1; n < 40; ++n)
    for (int64_t most = 1; most < 12; ++most) {
      const auto sizes = cut_share(n, most);
      EXPECT_EQ(sum(sizes), n);
      EXPECT_EQ(static_cast<int64_t>(sizes.size()), (n + most - 1) / most);
      EXPECT_LE(sizes.front(), most);
      EXPECT_LE(sizes.front() - sizes.back(), 1);
    }
}

TEST(data_balance_plan, what_cannot_be_dealt_is_refused_with_its_numbers) {
  EXPECT_TRUE(has(refusal([] { equal_shares(3, 4); }), "3 samples a step are too few for 4 ranks"));
  EXPECT_TRUE(has(refusal([] { balanced_shares({{1, 1}, 10, 1, 4}); }), "4 at most each"));
  EXPECT_TRUE(has(refusal([] { balanced_shares({{1, 0}, 10, 1, 0}); }), "0 seconds"));
}

}  // namespace balance_plan_test
