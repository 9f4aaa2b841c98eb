// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks go on in their processes: what such a run cannot have.
#include <gtest/gtest.h>

#include "tests/config/small_configs.h"
#include "tests/support/refusals.h"
#include "trireme/config/sections/elastic.h"

namespace elastic_rules_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

std::string said(Sets sets) {
  sets.insert(sets.begin(), "elastic.mode=in_process");
  return error_of(R"({"train_batch_size": 8})", sets);
}

}  // namespace

TEST(config_elastic_rules, plain_data_parallelism_goes_on) {
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({"elastic.batch=scale"}), "");
  EXPECT_EQ(said({"comm.backend=gloo"}), "");
  EXPECT_EQ(said({"comm.backend=hybrid"}), "");
  EXPECT_EQ(said({"training.reproducible=true"}), "");
  EXPECT_FALSE(config(R"({"train_batch_size": 8})").section<ElasticSection>().in_process());
}

TEST(config_elastic_rules, what_is_lost_with_a_rank_is_refused_by_name) {
  for (const char* other :
       {"parallelism.tp=2", "parallelism.pp=2", "comm.backend=mpi", "comm.strategy=adasum",
        "compression.type=int8", "averaging.type=local_sgd", "balance.mode=throughput",
        "comm.tune_buckets=true", "monitor.gradient_noise_scale=true"}) {
    const std::string text = said({other}),
                      key = std::string(other).substr(0, std::string(other).find('='));
    EXPECT_TRUE(has(text, "elastic.mode is \"in_process\", and with " + key))
        << other << ": " << text;
  }
}

TEST(config_elastic_rules, shards_go_on_where_they_are_in_the_memory_of_their_ranks) {
  for (const char* stage : {"1", "2", "3"}) {
    const std::string zero = std::string("zero_optimization.stage=") + stage;
    EXPECT_EQ(said({zero}), "");
    EXPECT_EQ(said({zero, "parallelism.dp_shard=2"}), "");
    EXPECT_EQ(said({zero, "parallelism.dp_replicate=2"}), "");
    EXPECT_TRUE(has(said({zero, "parallelism.dp_replicate=2", "parallelism.dp_shard=2"}),
                    "dp_replicate 2 × parallelism.dp_shard 2 fix the number of ranks"));
    EXPECT_EQ(said({zero, "zero_optimization.offload_optimizer.device=cpu"}), "")
        << "it is in the memory of the process";
    EXPECT_TRUE(has(said({zero, "zero_optimization.offload_optimizer.device=nvme",
                          "zero_optimization.offload_optimizer.nvme_path=/tmp"}),
                    "offload_optimizer.device"));
  }
  EXPECT_TRUE(has(said({"zero_optimization.stage=1", "zero_optimization.share_weights=true"}),
                  "may have been writing"));
}

TEST(config_elastic_rules, the_same_bits_need_the_same_samples) {
  EXPECT_TRUE(has(said({"training.reproducible=true", "elastic.batch=scale"}), "leave it at keep"));
}

TEST(config_elastic_rules, between_hosts_as_in_them_groups_are_made_anew) {
  EXPECT_TRUE(has(said({"comm.backend=hybrid", "comm.across=mpi"}), "comm.across"));
}

}  // namespace elastic_rules_test
