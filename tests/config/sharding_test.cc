// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/sharding.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace sharding_test {

using namespace trireme;

TEST(config_sharding, the_product_is_always_the_ranks_or_that_is_said) {
  for (int stage = 0; stage <= 3; ++stage)
    for (int dp = 1; dp <= 24; ++dp)
      for (int shard = 0; shard <= 26; ++shard)
        for (int replicate = 0; replicate <= 26; ++replicate) {
          const bool possible = stage == 0 ? shard <= 1 && (replicate == 0 || replicate == dp)
                                : shard > 0 && replicate > 0 ? shard * replicate == dp
                                : shard + replicate > 0      ? dp % (shard + replicate) == 0
                                                             : true;
          try {
            const Sharding s = solve_sharding({stage, {shard, "a"}, {replicate, "b"}}, {.dp = dp});
            ASSERT_TRUE(possible) << stage << " " << dp << " " << shard << " " << replicate;
            EXPECT_EQ(s.dp_shard * s.dp_replicate, dp);
            EXPECT_EQ(s.stage, stage);
            if (stage == 0) {
              EXPECT_EQ(s.dp_shard, 1);
            }
            if (shard > 0) {
              EXPECT_EQ(s.dp_shard, shard);
            }
            if (replicate > 0) {
              EXPECT_EQ(s.dp_replicate, replicate);
            }
            if (stage > 0 && shard + replicate == 0) {
              EXPECT_EQ(s.dp_shard, dp);
            }
          } catch (const UsageError&) {
            ASSERT_FALSE(possible) << stage << " " << dp << " " << shard << " " << replicate;
          }
        }
}

TEST(config_sharding, what_cannot_be_names_every_number_and_its_place) {
  auto refusal = [](const ShardingInputs& in, int dp) -> std::string {
    try {
      solve_sharding(in, {.dp = dp});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({2, {2, "a.json:1:2"}, {3, "b.json:3:4"}}, 12),
            "parallelism.dp_replicate 3 (b.json:3:4) × dp_shard 2 (a.json:1:2) is not 12 ranks: "
            "change one, or leave one out");
  EXPECT_EQ(refusal({0, {2, "a.json:1:2"}, {}}, 2),
            "parallelism.dp_shard is 2 (a.json:1:2), and zero_optimization.stage 0 shards nothing: "
            "set the stage to 1, 2 or 3, or leave it out");
  EXPECT_EQ(refusal({1, {}, {5, "--set"}}, 4),
            "parallelism.dp_replicate 5 (--set) does not divide 4 ranks: use a divisor of 4, or "
            "leave it out");
}

}  // namespace sharding_test
