// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/philox.h"

#include <gtest/gtest.h>

namespace philox_test {

using namespace trireme;

TEST(base_philox, matches_the_published_known_answers) {
  // Random123 1.09, kat_vectors, philox4x32 10 rounds.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(base_philox, uniform_stays_below_one) {
  EXPECT_LT(uniform01(~0u), 1.0f);
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_LT(uniform01_double(~0u, ~0u), 1.0);
}

TEST(base_philox, below_covers_its_range) {
  bool seen[7] = {};
  for (uint32_t i = 0; i < 1000; ++i) {
    auto b = philox_block(42, 0, i);
    auto v = below(uint64_t{b[0]} << 32 | b[1], 7);
    ASSERT_LT(v, 7u);
    seen[v] = true;
  }
  for (bool s : seen) EXPECT_TRUE(s);
}

}  // namespace philox_test
