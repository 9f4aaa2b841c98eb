// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/share_deal.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"

namespace share_deal_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Samples whose input is their number.
class Numbers : public DataSource {
 public:
  explicit Numbers(int64_t size, int64_t fixed = 0) : size_(size), fixed_(fixed) {}
  int64_t size() const override { return size_; }
  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const auto n = static_cast<int64_t>(ids.size());
    return {
        at::tensor(at::ArrayRef<int64_t>(ids)).view({n, 1}), at::zeros({n}, at::kLong), ids, n, {}};
  }
  std::string describe() const override { return "numbers"; }
  int64_t fixed_rows() const override { return fixed_; }

 private:
  int64_t size_, fixed_;
};

constexpr int64_t kMicro = 4;
GlobalBatch plan_of(int64_t size, int64_t leaves) { return GlobalBatch({size, kMicro, leaves, 7}); }

/// Ids of the data that a batch holds.
std::vector<int64_t> ids_of(const Batch& batch) {
  std::vector<int64_t> ids;
  for (const auto& micro : batch)
    for (int64_t i = 0; i < micro.input.size(0); ++i)
      ids.push_back(micro.input[i][0].item<int64_t>());
  return ids;
}

}  // namespace

TEST(data_share_deal, equal_shares_are_the_leaves_of_before) {
  auto source = std::make_shared<Numbers>(100);
  const GlobalBatch plan = plan_of(100, 6);
  auto deal = std::make_shared<ShareDeal>(equal_shares(24, 3));
  for (int rank = 0; rank < 3; ++rank) {
    auto now = share_batches(source, plan, rank, deal, kMicro),
         then = leaf_batches(source, plan, rank, 3);
    for (int64_t step = 0; step < 9; ++step) {
      const Batch a = now(step), b = then(step);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(a[i].input.equal(b[i].input));
        EXPECT_EQ(a[i].samples, b[i].samples);
        EXPECT_EQ(a[i].weight, b[i].weight);
      }
    }
  }
}

TEST(data_share_deal, no_sample_is_lost_or_read_twice_while_shares_change) {
  // An epoch of 5 steps of 24; loaders read ahead while the deal changes behind them.
  auto source = std::make_shared<Numbers>(120);
  const GlobalBatch plan = plan_of(120, 6);
  for (const bool background : {false, true}) {
    constexpr int kDepth = 2;
    std::vector<std::shared_ptr<ShareDeal>> deals;
    std::vector<PrefetchingLoader> loaders;
    for (int rank = 0; rank < 3; ++rank) {
      deals.push_back(std::make_shared<ShareDeal>(equal_shares(24, 3)));
      loaders.emplace_back(share_batches(source, plan, rank, deals.back(), kMicro),
                           LoaderOptions{.background = background, .depth = kDepth});
    }
    const std::vector<Shares> wanted = {{22, 1, 1}, {1, 1, 22}, {8, 8, 8}, {3, 20, 1}};
    for (int64_t step = 0; step < 20; ++step) {
      std::multiset<int64_t> seen, expected;
      for (size_t rank = 0; rank < 3; ++rank) {
        const Batch batch = loaders[rank].next();
        int64_t count = 0;
        for (const auto& micro : batch) {
          EXPECT_LE(micro.samples.size(), static_cast<size_t>(kMicro));
          count += static_cast<int64_t>(micro.samples.size());
        }
        EXPECT_EQ(count, deals[rank]->at(step)[rank]);
        for (const int64_t id : ids_of(batch)) seen.insert(id);
        // What Balance does behind a step, on every rank alike.
        deals[rank]->forget_before(step);
        if (step % 4 == 1)
          deals[rank]->change(ShareDeal::first_free_step(step, kDepth),
                              wanted[static_cast<size_t>(step / 4) % wanted.size()]);
      }
      for (const int64_t id : plan.part(step, 0, 24).ids) expected.insert(id);
      EXPECT_EQ(seen, expected) << "step " << step;
    }
  }
}

TEST(data_share_deal, a_loader_never_prepares_a_step_that_may_still_change) {
  std::mutex mutex;
  int64_t furthest = -1;
  constexpr int kDepth = 3;
  PrefetchingLoader loader(
      [&](int64_t step) {
        std::lock_guard lock(mutex);
        furthest = std::max(furthest, step);
        return Batch{};
      },
      {.background = true, .depth = kDepth});
  for (int64_t step = 0; step < 200; ++step) {
    loader.next();
    std::lock_guard lock(mutex);
    EXPECT_LT(furthest, ShareDeal::first_free_step(step, kDepth));
  }
}

TEST(data_share_deal, is_a_text_and_comes_back_from_it) {
  ShareDeal deal({12, 12});
  deal.change(10, {20, 4});
  deal.change(30, {16, 8});
  EXPECT_EQ(deal.text(), "0:12,12 10:20,4 30:16,8");
  deal.forget_before(12);
  EXPECT_EQ(deal.text(), "10:20,4 30:16,8");
  EXPECT_THROW(deal.at(9), UsageError);
  ShareDeal other({12, 12});
  EXPECT_TRUE(other.restore(deal.text()));
  EXPECT_EQ(other.text(), deal.text());
  EXPECT_EQ(other.at(29), (Shares{20, 4}));
  EXPECT_EQ(other.at(30), (Shares{16, 8}));
  EXPECT_EQ(other.newest(), (Shares{16, 8}));
  EXPECT_EQ(other.since(), 30);
  ShareDeal three({8, 8, 8}), larger({24, 24});
  EXPECT_FALSE(three.restore(deal.text()));
  EXPECT_FALSE(larger.restore(deal.text()));
  EXPECT_EQ(three.text(), "0:8,8,8");
  for (const char* wrong :
       {"", "x", "0", "0:", "0:12", "0:12,", "0:12,x", "0:12,12 ", "0:12,12 0:12,12", "0:-1,25",
        "0:12,12 5:12,12,0", "0:12,12;", "99999999999999999999:1,1"})
    EXPECT_THROW(
        {
          if (!other.restore(wrong)) throw Corrupt("of others");
        },
        Corrupt)
        << wrong;
  EXPECT_EQ(other.text(), deal.text());
}

TEST(data_share_deal, a_wrong_change_is_refused) {
  ShareDeal deal({12, 12});
  deal.change(5, {20, 4});
  EXPECT_TRUE(has(refusal([&] { deal.change(9, {20, 5}); }), "24 samples to 2 ranks"));
  EXPECT_TRUE(has(refusal([&] { deal.change(9, {20, 2, 2}); }), "to 3"));
  EXPECT_TRUE(has(refusal([&] {
                    deal.change(4, {12, 12});
                  }),
                  "a deal from step 4 was added after one from step 5"));
  EXPECT_TRUE(has(refusal([&] { deal.range(0, 2); }), "no rank 2"));
}

TEST(data_share_deal, data_that_cannot_vary_is_refused) {
  auto deal = std::make_shared<ShareDeal>(equal_shares(24, 2));
  const std::string text = refusal(
      [&] { share_batches(std::make_shared<Numbers>(100, 4), plan_of(100, 6), 0, deal, kMicro); });
  EXPECT_TRUE(has(text, "batches of 4 samples and cannot vary (numbers)") &&
              has(text, "balance.mode"))
      << text;
}

TEST(data_share_deal, a_micro_batch_is_cut_by_rows_with_their_weights) {
  MicroBatch micro{at::arange(10).view({5, 2}), at::arange(5), {40, 41, 42, 43, 44}, 10, {}};
  const Batch parts = cut_micro_batch(micro, 2);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].samples, (std::vector<int64_t>{40, 41}));
  EXPECT_EQ(parts[2].samples, (std::vector<int64_t>{44}));
  EXPECT_EQ(parts[0].weight, 4);
  EXPECT_EQ(parts[2].weight, 2);
  EXPECT_TRUE(at::cat({parts[0].input, parts[1].input, parts[2].input}).equal(micro.input));
  EXPECT_EQ(cut_micro_batch(micro, 5).size(), 1u);
  micro.weight = 11;
  EXPECT_TRUE(has(refusal([&] { cut_micro_batch(micro, 2); }), "row_weights"));
  micro.row_weights = {1, 2, 3, 4, 1};
  EXPECT_EQ(cut_micro_batch(micro, 2)[1].weight, 7);
}

}  // namespace share_deal_test
