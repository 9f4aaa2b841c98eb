// SPDX-License-Identifier: Apache-2.0
// Keys of comm.strategy, compression and averaging, and what does not go together.
#include <gtest/gtest.h>

#include "tests/config/small_configs.h"
#include "tests/support/refusals.h"

namespace slow_link_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

const char kBase[] = R"({"train_batch_size": 8})";

std::string said(const Sets& sets) { return error_of(kBase, sets); }

}  // namespace

TEST(config_slow_link, everything_is_off_unless_it_is_asked_for) {
  const Config c = config(kBase);
  EXPECT_EQ(c.get_string("comm.strategy"), "all_reduce");
  EXPECT_EQ(c.get_string("compression.type"), "none");
  EXPECT_EQ(c.get_string("averaging.type"), "none");
  EXPECT_FALSE(c.get_bool("comm.tune_buckets"));
}

TEST(config_slow_link, each_kind_is_read_with_its_numbers) {
  EXPECT_EQ(
      config(kBase, {"compression.type=int8", "compression.block=64"}).get_int("compression.block"),
      64);
  EXPECT_EQ(config(kBase, {"compression.type=topk"}).get_double("compression.density"), 0.1);
  EXPECT_EQ(config(kBase, {"compression.type=powersgd", "compression.rank=2"})
                .get_int("compression.rank"),
            2);
  EXPECT_EQ(config(kBase, {"averaging.type=diloco"}).get_double("averaging.outer_lr"), 0.7);
  EXPECT_EQ(config(kBase, {"averaging.type=hierarchical", "averaging.group_sizes=[2,4]",
                           "averaging.periods=[2,8]"})
                .get_int_list("averaging.periods"),
            (std::vector<int64_t>{2, 8}));
}

TEST(config_slow_link, a_number_of_another_kind_is_an_error_that_says_when_it_counts) {
  EXPECT_TRUE(has(said({"compression.type=int8", "compression.rank=2"}), "compression.rank"));
  EXPECT_TRUE(
      has(said({"averaging.type=local_sgd", "averaging.outer_lr=1"}), "averaging.outer_lr"));
  EXPECT_TRUE(has(said({"compression.block=64"}), "compression.block"));
  EXPECT_TRUE(
      has(said({"compression.type=topk", "compression.density=2"}), "between 1e-06 and 1,"));
  EXPECT_TRUE(has(said({"compression.type=int9"}), "int8"));
  EXPECT_TRUE(has(said({"compresion.type=int8"}), "compression"));
}

TEST(config_slow_link, there_is_one_way_in_which_ranks_become_one) {
  EXPECT_TRUE(has(said({"compression.type=int8", "averaging.type=diloco"}),
                  "averaging.type is \"diloco\", and compression.type \"int8\""));
  EXPECT_TRUE(has(said({"comm.strategy=adasum", "compression.type=int8"}),
                  "compression.type is \"int8\", and comm.strategy"));
}

TEST(config_slow_link, what_needs_whole_sums_is_refused_beside_each) {
  for (const char* kind : {"compression.type=int8", "averaging.type=local_sgd",
                           "comm.strategy=parameter_server", "comm.tune_buckets=true"}) {
    EXPECT_TRUE(has(said({kind, "zero_optimization.stage=2"}), "zero_optimization.stage")) << kind;
    EXPECT_TRUE(has(said({kind, "training.reproducible=true"}), "training.reproducible")) << kind;
    EXPECT_TRUE(has(said({kind, "communication_data_type=bf16"}), "communication_data_type"))
        << kind;
    EXPECT_EQ(said({kind}), "");
  }
  for (const char* kind :
       {"averaging.type=local_sgd", "comm.strategy=adasum", "comm.strategy=broadcast_parameters"}) {
    EXPECT_TRUE(has(said({kind, "bf16.enabled=true"}), "torch_autocast")) << kind;
    EXPECT_TRUE(has(said({kind, "monitor.gradient_noise_scale=true"}), "mean of all gradients"))
        << kind;
  }
  EXPECT_TRUE(has(said({"comm.tune_buckets=true", "compression.type=int8"}), "not plain sums"));
  EXPECT_EQ(said({"compression.type=int8", "bf16.enabled=true"}), "");
}

TEST(config_slow_link, unequal_shares_want_sums_by_samples) {
  for (const char* kind : {"averaging.type=local_sgd", "comm.strategy=adasum"})
    EXPECT_TRUE(has(said({kind, "balance.mode=throughput"}), "every rank counts the same")) << kind;
  EXPECT_EQ(said({"compression.type=int8", "balance.mode=throughput"}), "");
}

// grad/compression/compression.cc checks the same bounds (base/compression_options.h).
TEST(config_slow_link, what_every_rank_would_refuse_is_refused_here) {
  EXPECT_EQ(said({"compression.type=powersgd", "compression.rank=64"}), "");
  EXPECT_TRUE(has(said({"compression.type=powersgd", "compression.rank=65"}), "between 1 and 64"));
  EXPECT_EQ(said({"compression.type=topk", "compression.density=0.9"}), "");
}

TEST(config_slow_link, apexs_levels_that_keep_float32_weights_average) {
  for (const char* level : {"O0", "O1"})
    EXPECT_EQ(said({"averaging.type=local_sgd", "amp.enabled=true", "amp.dtype=bf16",
                    std::string("amp.opt_level=") + level}),
              "")
        << level;
  for (const char* level : {"O2", "O3"})
    EXPECT_TRUE(has(said({"averaging.type=local_sgd", "amp.enabled=true", "amp.dtype=bf16",
                          std::string("amp.opt_level=") + level}),
                    "torch_autocast"))
        << level;
}

TEST(config_slow_link, levels_come_in_pairs) {
  EXPECT_TRUE(has(said({"averaging.type=hierarchical"}), "averaging.group_sizes has 0 entries"));
  EXPECT_TRUE(has(
      said({"averaging.type=hierarchical", "averaging.group_sizes=[2,4]", "averaging.periods=[3]"}),
      "has 2 entries and averaging.periods has 1"));
}

}  // namespace slow_link_test
