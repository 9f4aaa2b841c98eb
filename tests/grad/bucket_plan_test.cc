// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace bucket_plan_test {

using namespace trireme;

TEST(grad_bucket_plan, every_parameter_is_in_one_bucket_of_its_kind_in_order) {
  uint64_t state = 1;
  auto next = [&](uint64_t n) {
    return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33 % 64
               ? (state >> 33) % n
               : 0;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<BucketItem> items(next(12));
    for (auto& i : items) i = {int64_t(next(50)), size_t(2) << next(3), int(next(2))};
    std::vector<int> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next(i)]);
    BucketSizes sizes{1 + next(100), 1 + next(300)};
    auto buckets = plan_buckets(items, order, sizes);
    std::set<int> seen;
    std::vector<size_t> last;
    for (auto& b : buckets) {
      ASSERT_FALSE(b.empty());
      size_t bytes = 0;
      for (int m : b) {
        ASSERT_TRUE(seen.insert(m).second);
        ASSERT_EQ(items[size_t(m)].kind, items[size_t(b[0])].kind);
        ASSERT_LT(bytes, std::max(sizes.first_bytes, sizes.bytes)) << "went on after it was full";
        bytes += size_t(items[size_t(m)].numel) * items[size_t(m)].item_bytes;
      }
      auto place = [&](int m) {
        return size_t(std::find(order.begin(), order.end(), m) - order.begin());
      };
      for (size_t k = 1; k < b.size(); ++k) ASSERT_LT(place(b[k - 1]), place(b[k]));
    }
    ASSERT_EQ(seen.size(), items.size());
  }
}

TEST(grad_bucket_plan, first_bucket_is_small_and_one_large_parameter_fills_one) {
  std::vector<BucketItem> items{{100, 4, 0}, {100, 4, 0}, {1000000, 4, 0}, {10, 4, 0}};
  auto b = plan_buckets(items, {3, 2, 1, 0}, {40, 800});
  EXPECT_EQ(b, (std::vector<std::vector<int>>{{3}, {2}, {1, 0}}));
}

}  // namespace bucket_plan_test
