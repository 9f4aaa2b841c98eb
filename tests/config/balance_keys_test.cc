// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/config/small_configs.h"
#include "tests/support/refusals.h"

namespace balance_keys_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::testing::has;
const Sets kOn = {"balance.mode=throughput"};
Sets on(std::initializer_list<const char*> more) {
  Sets sets = kOn;
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}
}  // namespace

TEST(config_balance_keys, balance_is_off_and_its_defaults_are_there_when_it_is_on) {
  EXPECT_EQ(config("{}").get_string("balance.mode"), "none");
  const Config c = config("{}", kOn);
  EXPECT_EQ(c.get_int("balance.every"), 10);
  EXPECT_EQ(c.get_double("balance.hysteresis"), 0.05);
  EXPECT_TRUE(c.get_int_list("balance.max_samples").empty());
  EXPECT_TRUE(c.get_bool("balance.memory_backoff"));
  EXPECT_EQ(config("{}", on({"balance.max_samples=[16,4]"})).get_int_list("balance.max_samples"),
            (std::vector<int64_t>{16, 4}));
  EXPECT_EQ(config("{}", on({"balance.max_samples=8"})).get_int_list("balance.max_samples"),
            (std::vector<int64_t>{8}));
}

TEST(config_balance_keys, its_keys_mean_nothing_without_it) {
  for (const char* set :
       {"balance.every=5", "balance.max_samples=[8]", "balance.memory_backoff=false"}) {
    const std::string text = error_of("{}", {set});
    EXPECT_TRUE(has(text, "applies when balance.mode is throughput")) << text;
  }
  EXPECT_TRUE(has(error_of("{}", {"balance.mode=fast"}), "none throughput") ||
              has(error_of("{}", {"balance.mode=fast"}), "throughput"));
  EXPECT_NE(error_of("{}", on({"balance.every=0"})), "");
  EXPECT_NE(error_of("{}", on({"balance.hysteresis=-1"})), "");
  EXPECT_NE(error_of("{}", on({"balance.max_samples=[0]"})), "");
}

TEST(config_balance_keys, what_cannot_vary_refuses_it_by_name) {
  std::string text = error_of("{}", on({"training.reproducible=true"}));
  EXPECT_TRUE(has(text, "balance.mode") && has(text, "training.reproducible")) << text;
  for (const char* stage : {"zero_optimization.stage=2", "zero_optimization.stage=3"}) {
    text = error_of("{}", on({stage}));
    EXPECT_TRUE(has(text, "balance.mode") && has(text, "use stage 0 or 1")) << text;
  }
  text = error_of("{}", on({"zero_optimization.stage=1"}));
  EXPECT_TRUE(has(text, "balance.memory_backoff") && has(text, "set it to false")) << text;
  EXPECT_EQ(error_of("{}", on({"zero_optimization.stage=1", "balance.memory_backoff=false"})), "");
}

}  // namespace balance_keys_test
