// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan/algorithm.h"

#include <gtest/gtest.h>

#include "trireme/comm/plan/tuning.h"

using namespace trireme;

namespace {

AlgorithmQuery query(size_t bytes, std::vector<int> hosts, bool deterministic = false) {
  AlgorithmQuery q;
  q.bytes = bytes;
  q.ranks = static_cast<int>(hosts.size());
  q.hosts = std::move(hosts);
  q.deterministic = deterministic;
  return q;
}

constexpr size_t kSmall = 512, kMiddle = 100'000, kLarge = 50'000'000;

}  // namespace

TEST(comm_plan_algorithm, names_go_both_ways) {
  for (Algorithm a : kAlgorithms) EXPECT_EQ(algorithm_named(name_of(a)), a);
  EXPECT_FALSE(algorithm_named("rings"));
}

TEST(comm_plan_algorithm, one_host_reads_in_place_and_several_ask_the_size) {
  for (size_t bytes : {kSmall, kMiddle, kLarge}) {
    EXPECT_EQ(choose_algorithm(query(bytes, {0, 0, 0, 0})), Algorithm::direct);
    EXPECT_EQ(choose_algorithm(query(bytes, {7})), Algorithm::direct);
  }
  EXPECT_EQ(choose_algorithm(query(kSmall, {0, 1, 2})), Algorithm::tree);
  EXPECT_EQ(choose_algorithm(query(kMiddle, {0, 1, 2})), Algorithm::halving_doubling);
  EXPECT_EQ(choose_algorithm(query(kLarge, {0, 1, 2})), Algorithm::ring);
  EXPECT_EQ(choose_algorithm(query(kMiddle, {0, 0, 1, 1})), Algorithm::two_level);
  EXPECT_EQ(choose_algorithm(query(kLarge, {0, 0, 1})), Algorithm::ring);
  AlgorithmQuery other = query(kLarge, {0, 1});
  other.op = "broadcast";
  EXPECT_EQ(choose_algorithm(other), Algorithm::direct);
}

TEST(comm_plan_algorithm, determinism_leaves_out_what_has_an_order_of_its_own) {
  TuningTable table({"cpu", 4, 2, "gloo"});
  for (Algorithm a : kAlgorithms)
    table.add({"all_reduce", 4, kLarge, a, a == Algorithm::ring ? 1.0 : 2.0});
  for (size_t bytes : {size_t{0}, kSmall, kMiddle, kLarge})
    for (const auto& hosts : std::vector<std::vector<int>>{
             {0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}})
      for (const TuningTable* t : {static_cast<const TuningTable*>(nullptr), &std::as_const(table)})
        EXPECT_TRUE(keeps_order(choose_algorithm(query(bytes, hosts, true), t), hosts));
  EXPECT_EQ(choose_algorithm(query(kLarge, {0, 1, 2, 3}), &table), Algorithm::ring);
  EXPECT_NE(choose_algorithm(query(kLarge, {0, 1, 2, 3}, true), &table), Algorithm::ring);
}

TEST(comm_plan_algorithm, what_was_measured_wins) {
  TuningTable table({"cpu", 4, 2, "gloo"});
  table.add({"all_reduce", 2, 1024, Algorithm::ring, 1e-6});
  EXPECT_EQ(choose_algorithm(query(2000, {0, 1}), &table), Algorithm::ring);
  EXPECT_EQ(choose_algorithm(query(2000, {0, 1, 2}), &table), Algorithm::tree);  // other ranks
}
