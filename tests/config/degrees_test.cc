// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/degrees.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/config/small_configs.h"
#include "tests/support/refusals.h"

namespace degrees_test {

using namespace trireme;
using namespace trireme::testing;
using trireme::testing::has;

namespace {

DegreeInputs given(int64_t dp, int64_t tp, int64_t pp) {
  return {.dp = {dp, "a.json:1:2"}, .tp = {tp, "b.json:3:4"}, .pp = {pp, "--set"}, .cp = {1, ""}};
}

std::string refused(int64_t dp, int64_t tp, int64_t pp, int world) {
  return refusal([&] { solve_degrees(given(dp, tp, pp), world); });
}

}  // namespace

// Over all small sizes: an answer keeps every number given and the product; there is none exactly
// when no product can be the world.
TEST(config_degrees, the_product_is_always_the_world_or_that_is_said) {
  int answers = 0, refusals = 0;
  for (int world = 1; world <= 16; ++world)
    for (int64_t tp = 1; tp <= 16; ++tp)
      for (int64_t pp = 1; pp <= 16; ++pp)
        for (int64_t dp = 0; dp <= 16; ++dp) {
          const bool possible = dp > 0 ? pp * dp * tp == world : world % (pp * tp) == 0;
          const std::string text = refused(dp, tp, pp, world);
          ASSERT_EQ(text.empty(), possible) << world << " " << dp << " " << tp << " " << pp;
          if (!possible) {
            ++refusals;
            for (const auto& [number, nothing, origin] :
                 {std::tuple{dp, 0, "a.json:1:2"}, {tp, 1, "b.json:3:4"}, {pp, 1, "--set"}})
              ASSERT_EQ(has(text, std::to_string(number) + " (" + origin + ")"), number != nothing)
                  << text;
            ASSERT_TRUE(has(text, std::to_string(world))) << text;
            continue;
          }
          ++answers;
          const Degrees d = solve_degrees(given(dp, tp, pp), world);
          ASSERT_EQ(d.pp * d.dp * d.tp, world);
          ASSERT_EQ(d.model() * d.dp, world);
          ASSERT_EQ(d.tp, tp);
          ASSERT_EQ(d.pp, pp);
          if (dp > 0) {
            ASSERT_EQ(d.dp, dp);
          }
        }
  EXPECT_GT(answers, 200);
  EXPECT_GT(refusals, 60000);
}

TEST(config_degrees, what_cannot_be_names_every_number_and_its_place) {
  EXPECT_EQ(refused(3, 1, 1, 2),
            "parallelism.dp is 3 (a.json:1:2), and there are 2 ranks: start 3 or leave it out");
  EXPECT_EQ(refused(0, 3, 1, 4),
            "parallelism.tp 3 (b.json:3:4) does not divide 4 ranks: start a multiple of 3 ranks, "
            "or change it");
  EXPECT_EQ(refused(0, 1, 2, 1),
            "parallelism.pp 2 (--set) does not divide 1 rank: start a multiple of 2 ranks, or "
            "change it");
  EXPECT_EQ(refused(0, 2, 3, 4),
            "parallelism.pp 3 (--set) × tp 2 (b.json:3:4) do not divide 4 ranks: start a multiple "
            "of 6 ranks, or change one of them");
  EXPECT_EQ(refused(2, 3, 1, 12),
            "parallelism.dp 2 (a.json:1:2) × tp 3 (b.json:3:4) = 6 ranks, and there are 12: start "
            "as many, or leave parallelism.dp out");
  EXPECT_EQ(refused(0, 1, 1, 0), "parallelism needs at least one rank, got 0");
  EXPECT_TRUE(has(refused(1'000'000, 1'000'000, 1'000'000, 8), "= 1000000000000000000 ranks"));
}

TEST(config_degrees, are_read_from_the_configuration_by_each_of_their_names) {
  const std::string batch = R"({"train_micro_batch_size_per_gpu": 2, )";
  for (const char* keys :
       {R"("parallelism": {"tp": 2, "pp": 2}})", R"("parallelism": {"tensor": 2, "pipeline": 2}})",
        R"("parallelism": {"pp": 2}, "tensor_parallel": {"autotp_size": 2}})"}) {
    const Config c = config(batch + keys);
    EXPECT_EQ(c.get_int("parallelism.tp"), 2);
    EXPECT_EQ(c.get_int("parallelism.pp"), 2);
    const Degrees d = c.resolve_degrees(8);
    EXPECT_EQ(d.dp, 2);
    EXPECT_EQ(c.resolve_batches(8).dp, 2) << "ranks of one model read the same samples";
    EXPECT_EQ(c.resolve_batches(8).train, 4);
    EXPECT_EQ(c.resolve_sharding(8).dp_replicate, 2);
    EXPECT_TRUE(has(refusal([&] { c.resolve_batches(6); }), "do not divide 6 ranks"));
  }
  EXPECT_TRUE(
      has(refusal([&] { config(batch + R"("parallelism": {"tensor": 2}})").resolve_degrees(3); }),
          "parallelism.tp 2 (c.json:1:"));
  EXPECT_EQ(config("{}").resolve_degrees(6).dp, 6);
}

TEST(config_degrees, sharding_divides_the_ranks_that_read_different_samples) {
  const Config c = config(R"({"train_micro_batch_size_per_gpu": 2, "parallelism": {"tp": 2},
                              "zero_optimization": {"stage": 2}})");
  EXPECT_EQ(c.resolve_sharding(8).dp_shard, 4);
  const Config half = config(R"({"train_micro_batch_size_per_gpu": 2, "parallelism":
                             {"tp": 2, "dp_shard": 2}, "zero_optimization": {"stage": 2}})");
  EXPECT_EQ(half.resolve_sharding(8).dp_shard, 2);
  EXPECT_EQ(half.resolve_sharding(8).dp_replicate, 2);
  EXPECT_EQ(refusal([&] { half.resolve_sharding(6); }),
            "parallelism.dp_shard 2 (c.json:2:52) does not divide dp 3 (6 ranks = dp 3 × tp 2 × pp "
            "1): use a divisor of 3, or leave it out");
  const Config staged = config(R"({"train_micro_batch_size_per_gpu": 2, "parallelism":
                             {"pp": 2, "dp_replicate": 2, "dp_shard": 2},
                             "zero_optimization": {"stage": 2}})");
  EXPECT_TRUE(has(refusal([&] { staged.resolve_sharding(12); }), "does not divide dp 6") ||
              has(refusal([&] { staged.resolve_sharding(12); }),
                  "is not dp 6 (12 ranks = dp 6 × tp 1 × pp 2)"));
}

TEST(config_degrees, a_deepspeed_file_that_turns_tensor_parallelism_off_says_nothing_about_tp) {
  const Files files{R"({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 0},
                        "parallelism": {"tp": 2}})"};
  EXPECT_EQ(files.load().get_int("parallelism.tp"), 2);
  EXPECT_EQ(files.load({"tensor_parallel.autotp_size=0"}).get_int("parallelism.tp"), 1);
  EXPECT_EQ(files.load({"tensor_parallel.autotp_size=4"}).get_int("parallelism.tp"), 4);
  EXPECT_EQ(error_of(R"({"tensor_parallel": {"autotp_size": 2}, "parallelism": {"tp": 2}})"),
            "c.json:1:63: parallelism.tp is given twice (first at c.json:1:37); remove one");
  EXPECT_EQ(error_of("{}", {"tensor_parallel.autotp_size=-1"}),
            "--set: tensor_parallel.autotp_size: must be between 1 and 1000000, found -1");
}

TEST(config_degrees, axes_of_no_version_may_be_one) {
  for (auto [axis, name] : {std::pair{"ep", "expert"}})
    for (const std::string key : {axis, name}) {
      EXPECT_EQ(error_of("{}", {"parallelism." + key + "=1"}), "") << key;
      EXPECT_EQ(
          error_of("{}", {"parallelism." + key + "=2"}),
          std::string("--set: parallelism.") + axis +
              " = 2 is refused: this version has data, context, tensor and pipeline parallelism");
    }
}

TEST(config_degrees, ranks_that_divide_a_row_read_the_same_samples) {
  for (const char* key : {"cp", "context"}) {
    const Config c =
        config(std::string(R"({"train_micro_batch_size_per_gpu": 2, "parallelism": {")") + key +
               R"(": 2, "tp": 2}, "zero_optimization": {"stage": 2}})");
    EXPECT_EQ(c.get_int("parallelism.cp"), 2);
    const Degrees d = c.resolve_degrees(8);
    EXPECT_EQ(d.cp, 2);
    EXPECT_EQ(d.dp, 2);
    EXPECT_EQ(d.together(), 4);
    EXPECT_EQ(c.resolve_batches(8).train, 4);
    EXPECT_EQ(c.resolve_sharding(8).dp_shard, 2);
    EXPECT_TRUE(has(refusal([&] { c.resolve_degrees(6); }), "do not divide 6 ranks"));
  }
  EXPECT_TRUE(has(error_of("{}", {"parallelism.cp=0"}), "must be between 1 and 1000000"));
  EXPECT_TRUE(has(error_of("{}", {"parallelism.cp_method=ulysses"}), "all_to_all"));
  EXPECT_EQ(error_of(R"({"parallelism": {"cp": 1, "context": 1}})"),
            "c.json:1:38: parallelism.context is given twice (first at c.json:1:24, as "
            "parallelism.cp); remove one");
}

TEST(config_degrees, deepspeeds_keys_of_divided_models_say_which_key_to_use) {
  const std::pair<const char*, const char*> rows[] = {
      {"pipeline.stages=2", "parallelism.pp is it"},
      {"sequence_parallel_size=2", "parallelism.cp is the number of ranks"},
      {"tensor_parallel.tp.tp_size=2", "parallelism.tp, or tensor_parallel.autotp_size"},
      {"tensor_parallel.tensor_parallel.tp_size=2",
       "parallelism.tp, or tensor_parallel.autotp_size"},
      {"tensor_parallel.tp.tp_grain_size=64", "parallelism.tp counts"}};
  for (const auto& [set, use] : rows) {
    const std::string text = error_of("{}", {set});
    EXPECT_TRUE(has(text, "is refused: ")) << set << text;
    EXPECT_TRUE(has(text, use)) << set << text;
  }
  for (const char* set : {"pipeline.stages=1", "pipeline.stages=auto", "sequence_parallel_size=1",
                          "tensor_parallel.tp.tp_size=1", "tensor_parallel.autotp_size=1"})
    EXPECT_EQ(error_of("{}", {set}), "") << set;
  for (const KeyInfo& key : all_keys())
    for (const char* axis : {"tensor", "pipeline", "sequence"})
      EXPECT_FALSE(has(key.why, std::string(axis) + " parallelism is not in this version"))
          << key.path << ": " << key.why;
}

}  // namespace degrees_test
