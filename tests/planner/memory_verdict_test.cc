// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory_verdict.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::memory_verdict_test {
namespace {

using Fit = MemoryVerdict::Fit;
constexpr int64_t kGiB = int64_t{1} << 30;

RankMemory rank_of(int64_t states, int64_t moving) {
  RankMemory m;
  m.weights = m.gradients = states / 4;
  m.optimizer = states / 2;
  m.activations = moving;
  return m;
}

HostMemory host_of(int64_t capacity, int64_t available) {
  HostMemory h;
  h.capacity = capacity;
  h.available = available;
  return h;
}

TEST(planner_memory_verdict, what_is_needed_against_what_there_is) {
  const HostMemory host = host_of(24 * kGiB, 20 * kGiB);
  EXPECT_EQ(judge_memory(rank_of(4 * kGiB, 4 * kGiB), 2, host).fit, Fit::fits);
  EXPECT_EQ(judge_memory(rank_of(4 * kGiB, 4 * kGiB), 3, host).fit, Fit::tight);
  // States are certain; of what moves a fifth may be over-estimated.
  EXPECT_EQ(judge_memory(rank_of(13 * kGiB, 0), 2, host).fit, Fit::impossible);
  EXPECT_EQ(judge_memory(rank_of(4 * kGiB, 10 * kGiB), 2, host).fit, Fit::tight);
  EXPECT_EQ(judge_memory(rank_of(4 * kGiB, 14 * kGiB), 2, host).fit, Fit::impossible);
}

TEST(planner_memory_verdict, the_sentence_has_both_figures) {
  HostMemory host = host_of(24 * kGiB, 20 * kGiB);
  EXPECT_EQ(judge_memory(rank_of(4 * kGiB, 0), 2, host).text,
            "2 ranks need 8.00 GiB (4.00 GiB each); 20.00 GiB are available: that fits");
  EXPECT_EQ(judge_memory(rank_of(40 * kGiB, 0), 1, host).text,
            "1 rank needs 40.00 GiB, and this machine has 24.00 GiB");
  host.limit = "this cgroup (/sys/fs/cgroup/job/memory.max)";
  EXPECT_EQ(judge_memory(rank_of(10240 * kGiB, 0), 2, host).text,
            "2 ranks need 20.0 TiB (10.0 TiB each), and this cgroup "
            "(/sys/fs/cgroup/job/memory.max) has 24.00 GiB");
}

TEST(planner_memory_verdict, a_limit_of_one_process_counts_for_each) {
  HostMemory host = host_of(24 * kGiB, 20 * kGiB);
  host.process_limit = 2 * kGiB;
  host.process_limit_name = "ulimit -v";
  EXPECT_EQ(judge_memory(rank_of(kGiB, 0), 8, host).fit, Fit::fits);
  const MemoryVerdict v = judge_memory(rank_of(3 * kGiB, 0), 1, host);
  EXPECT_EQ(v.fit, Fit::impossible);
  EXPECT_NE(v.text.find("ulimit -v gives a process 2.00 GiB"), std::string::npos) << v.text;
}

TEST(planner_memory_verdict, sums_beyond_64_bits_are_impossible_and_unknown_hosts_fit) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  EXPECT_EQ(judge_memory(rank_of(kMost, kMost), 4096, host_of(kGiB, kGiB)).fit, Fit::impossible);
  EXPECT_EQ(judge_memory(rank_of(kMost, kMost), 4096, {}).fit, Fit::fits);
}

}  // namespace
}  // namespace trireme::memory_verdict_test
