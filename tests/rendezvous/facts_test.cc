// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/facts/facts.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/file.h"
#include "trireme/rendezvous/facts/read_facts.h"

namespace trireme::facts_test {
namespace {

using Lines = std::vector<std::string>;

RankFacts rank(int first, const std::string& host, std::vector<Fact> facts, int ranks = 1) {
  RankFacts one;
  one.host = host;
  one.first_rank = first;
  one.ranks = ranks;
  one.facts = std::move(facts);
  return one;
}
Fact size(const std::string& name, double gib) {
  return {name, fmt::format("{:.1f} GiB", gib), false, 1.1, gib};
}

TEST(rendezvous_facts, of_hosts_that_are_alike_say_nothing) {
  const std::vector<Fact> same{{"LibTorch", "1.13.1", true}, size("memory", 251.6)};
  const FactTable table = compare_facts({rank(0, "a", same, 8), rank(8, "b", same, 8)});
  EXPECT_EQ(table.lines, Lines{});
  EXPECT_EQ(table.refusal, "");
  EXPECT_EQ(compare_facts({rank(0, "a", same)}).lines, Lines{});
}

TEST(rendezvous_facts, that_differ_are_a_table_with_a_column_for_those_that_are_alike) {
  const FactTable table = compare_facts(
      {rank(0, "a", {{"threads", "4"}, {"BLAS", "OpenBLAS Zen"}, size("memory", 128)}, 4),
       rank(4, "a", {{"threads", "4"}, {"BLAS", "OpenBLAS Zen"}, size("memory", 125)}, 4),
       rank(8, "b", {{"threads", "4"}, {"BLAS", "OpenBLAS Haswell"}, size("memory", 64)}, 8)});
  EXPECT_EQ(table.lines, (Lines{"what   | a (ranks 0-7) | b (ranks 8-15)",
                                "BLAS   | OpenBLAS Zen  | OpenBLAS Haswell",
                                "memory | 128.0 GiB     | 64.0 GiB"}));
  EXPECT_EQ(table.refusal, "");
}

TEST(rendezvous_facts, of_a_hundred_hosts_one_that_is_other_is_seen_at_a_glance) {
  std::vector<RankFacts> all;
  for (int h = 0; h < 100; ++h)
    all.push_back(rank(8 * h, fmt::format("host{}", h),
                       {{"open files (ulimit -n)", h == 63 ? "1024" : "1048576"}}, 8));
  EXPECT_EQ(compare_facts(all).lines,
            (Lines{"what                   | host0 and 98 more hosts (792 ranks) | host63 (ranks "
                   "504-511)",
                   "open files (ulimit -n) | 1048576                             | 1024"}));
  // As many kinds as hosts do not fill the terminal.
  for (int h = 0; h < 100; ++h) all[static_cast<size_t>(h)].facts[0].value = std::to_string(h);
  const FactTable many = compare_facts(all);
  ASSERT_EQ(many.lines.size(), 3u);
  EXPECT_EQ(many.lines[2], "and 94 more that differ");
}

TEST(rendezvous_facts, numbers_that_are_near_to_each_other_are_alike) {
  EXPECT_EQ(
      compare_facts({rank(0, "a", {size("memory", 251.6)}), rank(1, "b", {size("memory", 245)})})
          .lines,
      Lines{});
  EXPECT_EQ(
      compare_facts({rank(0, "a", {size("memory", 0)}), rank(1, "b", {size("memory", 0)})}).lines,
      Lines{});
  EXPECT_EQ(compare_facts({rank(0, "a", {size("memory", 0)}), rank(1, "b", {size("memory", 1)})})
                .lines.size(),
            2u);
}

TEST(rendezvous_facts, that_must_agree_are_a_refusal_that_names_ranks_hosts_and_both_values) {
  const FactTable table =
      compare_facts({rank(0, "a", {{"Trireme", "0.1.0", true}, {"threads", "2"}}, 2),
                     rank(2, "b", {{"Trireme", "0.2.0", true}, {"threads", "4"}}, 2)});
  EXPECT_EQ(table.refusal,
            "ranks 2-3 on b have another Trireme than ranks 0-1 on a (0.2.0; there 0.1.0): give "
            "every rank the same build, files and flags");
  EXPECT_EQ(table.lines.size(), 3u);
  // On one host its name tells nothing.
  EXPECT_EQ(compare_facts({rank(0, "a", {{"configuration", "training.seed=0", true}}),
                           rank(1, "a", {{"configuration", "training.seed=1", true}})})
                .refusal,
            "rank 1 has another configuration than rank 0 (training.seed=1; there "
            "training.seed=0): give every rank the same build, files and flags");
}

TEST(rendezvous_facts, that_one_rank_does_not_have_differ_too) {
  const FactTable table =
      compare_facts({rank(0, "a", {{"LibTorch", "1.13.1", true}}), rank(1, "b", {})});
  EXPECT_EQ(table.lines,
            (Lines{"what     | a (rank 0) | b (rank 1)", "LibTorch | 1.13.1     | -"}));
  EXPECT_NE(table.refusal.find("rank 1 on b has another LibTorch"), std::string::npos);
}

TEST(rendezvous_facts, are_printed_harmlessly_whatever_a_host_says_of_itself) {
  const FactTable table = compare_facts({rank(0, "a\x1b[2J", {{"BLAS", "x\ny", true}}),
                                         rank(1, "b", {{"BLAS", std::string(1000, 'z'), true}})});
  ASSERT_EQ(table.lines.size(), 2u);
  EXPECT_NE(table.lines[0].find("a?[2J (rank 0)"), std::string::npos) << table.lines[0];
  EXPECT_NE(table.lines[1].find("x?y"), std::string::npos);
  EXPECT_LT(table.lines[1].size(), 120u);
  EXPECT_LT(table.refusal.size(), 300u);
}

TEST(rendezvous_facts, clocks_differ_only_where_nothing_else_explains_what_they_showed) {
  RankFacts a = rank(0, "a", {}), b = rank(1, "b", {});
  // They met twice; the second came three seconds late to the first meeting, by equal clocks.
  a.came = {100, 104}, a.left = {103.1, 104.1};
  b.came = {103, 104}, b.left = {103.1, 104.1};
  EXPECT_NEAR(clock_offset(a, b).least, -0.1, 1e-9);
  EXPECT_NEAR(clock_offset(a, b).most, 0.1, 1e-9);
  EXPECT_EQ(compare_facts({a, b}).lines, Lines{});
  for (double& t : b.came) t += 40;
  for (double& t : b.left) t += 40;
  EXPECT_EQ(compare_facts({a, b}).lines,
            (Lines{"what  | a (rank 0) | b (rank 1)", "clock | 0          | ahead by 39.9 s"}));
  EXPECT_EQ(compare_facts({a, b}).refusal, "");  // no decision of ours compares two clocks
  EXPECT_EQ(compare_facts({b, a}).lines[1], "clock | 0          | behind by 39.9 s");
  // Who did not meet is not judged.
  b.came.clear();
  EXPECT_EQ(compare_facts({a, b}).lines, Lines{});
}

TEST(rendezvous_facts, are_read_from_the_host) {
  PrivateFolder root("trireme-test");
  std::filesystem::create_directories(root / "proc");
  std::ofstream(root / "proc/meminfo") << "MemTotal:       2097152 kB\nMemFree: 1 kB\n";
  const auto facts = read_facts("", root.path());
  const auto value = [&](const std::string& name) {
    for (const Fact& fact : facts)
      if (fact.name == name) return fact.value;
    return std::string("absent");
  };
  EXPECT_EQ(value("memory"), "2.0 GiB");
  EXPECT_NE(value("open files (ulimit -n)"), "absent");
  EXPECT_NE(value("/dev/shm"), "absent");
  // A folder that is still to be made is on the disk of the one above it.
  EXPECT_EQ(read_facts(root / "a/b/c").back().name, "free for " + (root / "a/b/c"));
}

TEST(rendezvous_facts, of_a_file_are_its_bytes) {
  PrivateFolder folder("trireme-test");
  std::ofstream(folder / "one") << "print(1)";
  std::ofstream(folder / "same") << "print(1)";
  std::ofstream(folder / "other") << "print(2)";
  EXPECT_EQ(file_fact("x", folder / "one").value, file_fact("x", folder / "same").value);
  EXPECT_NE(file_fact("x", folder / "one").value, file_fact("x", folder / "other").value);
  EXPECT_EQ(file_fact("x", folder / "nothing").value, "not there");
}

}  // namespace
}  // namespace trireme::facts_test
