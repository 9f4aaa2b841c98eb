// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/random_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <functional>
#include <vector>

#include "trireme/base/philox.h"

namespace random_kernels_test {

using namespace trireme;

namespace {
// Runs f with each instruction set that this machine has.
void on_each_target(const std::function<void()>& f) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t target = 1; target > 0; target <<= 1) {
    if (!(all & target)) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}
}  // namespace

TEST(tensor_random_kernels, words_are_those_of_the_blocks_on_every_target) {
  on_each_target([] {
    for (uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 3, uint64_t{1} << 40}) {
      const uint64_t key = 0x123456789abcdef0 + first;
      uint32_t words[trireme::detail::kWordsPerCall];
      trireme::detail::philox_words(key, first, words);
      for (uint64_t i = 0; i < trireme::detail::kWordsPerCall; ++i)
        ASSERT_EQ(words[i], philox_block(key, 0, first + i / 4)[i % 4]) << first << " " << i;
    }
  });
}

TEST(tensor_random_kernels, dropout_is_the_same_bits_on_every_target) {
  std::vector<float> x(1000), first;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 0.3f;
  on_each_target([&] {
    for (int64_t n : {1000, 999, 129, 128, 1}) {
      std::vector<float> y(x.size(), -1);
      trireme::detail::dropout_row(x.data(), y.data(), n, 77, 20000, 1.25f);
      if (first.empty()) first = y;
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(y[i], i < static_cast<size_t>(n) ? first[i] : -1) << n << " " << i;
    }
  });
}

TEST(tensor_random_kernels, dropout_works_in_place) {
  std::vector<float> x(300, 1), y(300);
  trireme::detail::dropout_row(x.data(), y.data(), 300, 7, 30000, 2);
  trireme::detail::dropout_row(x.data(), x.data(), 300, 7, 30000, 2);
  EXPECT_EQ(x, y);
}

}  // namespace random_kernels_test
