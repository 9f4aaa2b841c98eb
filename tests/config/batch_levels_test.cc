// SPDX-License-Identifier: Apache-2.0
// Batch numbers of several files and flags.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/config/small_configs.h"

namespace batch_levels_test {

using namespace trireme;
using namespace trireme::testing;

TEST(config_batch_levels, two_numbers_give_the_third) {
  auto micro = config(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})");
  EXPECT_EQ(product(micro.resolve_batches(1)), "8=4*2*1");
  EXPECT_EQ(product(micro.resolve_batches(3)), "24=4*2*3");
  EXPECT_EQ(product(config(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})")
                        .resolve_batches(2)),
            "64=4*8*2");
  EXPECT_EQ(product(config(R"({"train_batch_size": 64})").resolve_batches(4)), "64=16*1*4");
  EXPECT_EQ(product(config(R"({"train_micro_batch_size_per_gpu": 5})").resolve_batches(2)),
            "10=5*1*2");
  EXPECT_THROW(config("{}").resolve_batches(1), UsageError);
}

TEST(config_batch_levels, a_later_number_rederives_the_others) {
  std::string_view both =
      R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})";
  EXPECT_EQ(product(config(both, {"train_micro_batch_size_per_gpu=8"}).resolve_batches(2)),
            "32=8*2*2");
  EXPECT_EQ(product(config(both, {"gradient_accumulation_steps=3"}).resolve_batches(2)),
            "24=4*3*2");
  EXPECT_EQ(product(config(both, {"train_batch_size=64"}).resolve_batches(2)), "64=4*8*2");
  EXPECT_EQ(product(config(both, {"train_batch_size=6"}).resolve_batches(2)),
            "6=3*1*2");  // 4 does not fit
  EXPECT_NE(config(both, {"train_batch_size=6"})
                .resolve_batches(2)
                .note.find("train_micro_batch_size_per_gpu 4"),
            std::string::npos);

  std::string_view all =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4})";
  EXPECT_EQ(product(config(all, {"train_micro_batch_size_per_gpu=4"}).resolve_batches(2)),
            "64=4*8*2");
  EXPECT_EQ(product(config(all, {"gradient_accumulation_steps=8"}).resolve_batches(2)), "64=4*8*2");
  EXPECT_EQ(product(config(all, {"train_batch_size=32"}).resolve_batches(2)), "32=8*2*2");
  EXPECT_EQ(product(config(all, {"train_batch_size=32", "train_micro_batch_size_per_gpu=2"})
                        .resolve_batches(2)),
            "32=2*8*2");
  EXPECT_THROW(config(all).resolve_batches(3), UsageError);
  EXPECT_EQ(product(config(all, {"train_micro_batch_size_per_gpu=5"}).resolve_batches(2)),
            "10=5*1*2");
}

TEST(config_batch_levels, a_number_that_one_file_dropped_stays_dropped) {
  Files files{R"({"train_batch_size": 64})",
              R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})"};
  EXPECT_EQ(product(files.load({"train_micro_batch_size_per_gpu=8"}).resolve_batches(2)),
            "32=8*2*2");
  auto inspection = files.inspect();
  EXPECT_EQ(find(inspection, "train_batch_size")->verdict, KeyReport::Verdict::without_effect);
}

// Whatever three levels give, in whatever order: the last level that gives batch numbers is kept,
// the product holds, and only that level's own numbers can make it impossible.
TEST(config_batch_levels, the_last_level_is_always_kept) {
  const std::string keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                              "gradient_accumulation_steps"};
  auto text = [&](int mask, int64_t train, int64_t micro, int64_t accumulation) {
    nlohmann::json json = nlohmann::json::object();
    if (mask & 1) json[keys[0]] = train;
    if (mask & 2) json[keys[1]] = micro;
    if (mask & 4) json[keys[2]] = accumulation;
    return json.dump();
  };
  for (int first = 1; first < 8; ++first)
    for (int second = 0; second < 8; ++second)
      for (int64_t micro : {2, 3})
        for (int dp : {1, 2, 3}) {
          if (first == 4) continue;  // accumulation alone is no batch
          std::string later = text(second, 12 * dp, micro, 2);
          Sets sets;
          auto given = nlohmann::json::parse(later);
          for (auto& [key, value] : given.items()) sets.push_back(key + "=" + value.dump());
          auto c = config(text(first, 24 * dp, 4, 6), sets);
          SCOPED_TRACE(text(first, 24 * dp, 4, 6) + later);
          if (second == 7 && micro * 2 != 12) {
            EXPECT_THROW(c.resolve_batches(dp), UsageError);
            continue;
          }
          auto b = c.resolve_batches(dp);
          EXPECT_EQ(b.train, b.micro * b.accumulation * dp);
          if (second & 1) {
            EXPECT_EQ(b.train, 12 * dp);
          }
          if (second & 2) {
            EXPECT_EQ(b.micro, micro);
          }
          if (second & 4) {
            EXPECT_EQ(b.accumulation, 2);
          }
          auto again = Config::from_text("again", c.to_json());
          EXPECT_EQ(product(again.resolve_batches(dp)), product(b));
          EXPECT_EQ(again.hash(), c.hash());
        }
}

TEST(config_batch_levels, leaves_set_the_accumulation) {
  auto c = config(
      R"({"train_micro_batch_size_per_gpu": 2, "training": {"reproducible": true, "leaves": 8}})");
  for (int dp : {1, 2, 4, 8})
    EXPECT_EQ(product(c.resolve_batches(dp)),
              "16=2*" + std::to_string(8 / dp) + "*" + std::to_string(dp));
  EXPECT_THROW(c.resolve_batches(3), UsageError);
  EXPECT_THROW(c.resolve_batches(16), UsageError);
  auto both = R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
                  "training": {"reproducible": true, "leaves": 8}})";
  EXPECT_EQ(product(config(both).resolve_batches(2)), "16=2*4*2");
  EXPECT_THROW(config(both).resolve_batches(4), UsageError);
  auto later = config(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1})",
                      {"training.reproducible=true", "training.leaves=8"});
  EXPECT_EQ(product(later.resolve_batches(2)), "16=2*4*2");
}

TEST(config_batch_levels, another_number_of_ranks_than_asked_for_is_refused) {
  auto c = config(R"({"train_batch_size": 8, "parallelism": {"dp": 4}})");
  EXPECT_EQ(product(c.resolve_batches(4)), "8=2*1*4");
  EXPECT_THROW(c.resolve_batches(2), UsageError);
}

}  // namespace batch_levels_test
