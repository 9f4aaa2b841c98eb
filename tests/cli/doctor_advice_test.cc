// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "cli/doctor/advice.h"
#include "cli/doctor/peers.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"

namespace trireme::doctor::doctor_advice_test {
namespace {

using trireme::testing::has;

std::string all(const Findings& findings) {
  std::string text;
  for (const auto& f : findings) text += f.what + " -> " + f.todo + "\n";
  return text;
}

TEST(cli_doctor_advice, reads_what_the_kernel_writes) {
  EXPECT_EQ(chosen_in("always [madvise] never\n"), "madvise");
  EXPECT_EQ(chosen_in("[never]"), "never");
  EXPECT_EQ(chosen_in("none\n"), "none");
  EXPECT_EQ(chosen_in("]odd["), "]odd[");
  const char info[] =
      "MemTotal:        2048 kB\nMemAvailable:    1024 kB\nHugePages_Total:       3\n";
  EXPECT_EQ(meminfo(info, "MemTotal"), 2048u << 10);
  EXPECT_EQ(meminfo(info, "HugePages_Total"), 3u);
  EXPECT_EQ(meminfo(info, "Mem"), std::nullopt);
  EXPECT_EQ(meminfo("", "MemTotal"), std::nullopt);
  EXPECT_EQ(cgroup_limit("max\n"), std::nullopt);
  EXPECT_EQ(cgroup_limit("1048576\n"), 1048576u);
  EXPECT_EQ(cgroup_limit("9223372036854771712\n"), std::nullopt);  // v1's way to say none
  EXPECT_EQ(cgroup_limit(""), std::nullopt);
}

TEST(cli_doctor_advice, numbers_are_written_for_people) {
  EXPECT_EQ(text_of_list({}), "");
  EXPECT_EQ(text_of_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(text_of_bytes(512), "512 B");
  EXPECT_EQ(text_of_bytes(uint64_t{64} << 20), "64 MiB");
  EXPECT_EQ(text_of_bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(text_of_bytes(UINT64_MAX), "unlimited");
}

TEST(cli_doctor_advice, generous_limits_are_fine_and_tight_ones_are_named) {
  EXPECT_EQ(all(advise(Limits{})), "");
  Limits l;
  l.files = 64;
  EXPECT_TRUE(has(all(advise(l)), "ulimit -n 65536")) << all(advise(l));
  l.hard_files = 100;
  EXPECT_TRUE(has(all(advise(l)), "limits.conf")) << all(advise(l));
  l = {};
  l.memlock = 65536;
  EXPECT_EQ(all(advise(l)), "");  // nothing of ours locks memory
  l.infiniband = true;
  EXPECT_TRUE(has(all(advise(l)), "ulimit -l unlimited"));
  l = {};
  l.memory = uint64_t{2} << 30;
  EXPECT_EQ(all(advise(l)), "");
  l.memory_used = uint64_t{3} << 29;
  EXPECT_TRUE(has(all(advise(l)), "memory.max"));
  l = {};
  l.pids = 100;
  l.pids_used = 90;
  EXPECT_TRUE(has(all(advise(l)), "pids.max"));
  l.pids_used = 200;  // more than allowed: the limit came later
  EXPECT_TRUE(has(all(advise(l)), "pids.max"));
}

TEST(cli_doctor_advice, a_missing_system_call_says_what_is_lost) {
  EXPECT_EQ(all(advise(KernelFeatures{})), "");
  KernelFeatures k;
  k.memfd = "Operation not permitted";
  EXPECT_TRUE(has(all(advise(k)), "cannot share memory"));
  EXPECT_TRUE(has(all(advise(k)), "seccomp"));
  k = {};
  k.process_vm_readv = "Operation not permitted";
  EXPECT_TRUE(has(all(advise(k)), "SYS_PTRACE"));
  k.ptrace_scope = 1;
  EXPECT_TRUE(has(all(advise(k)), "kernel.yama.ptrace_scope=0"));
}

TEST(cli_doctor_advice, bfloat16_is_called_what_it_is_beside_float32) {
  EXPECT_EQ(text_of(HalfRate{159, 84}),
            "84 GFLOP/s in LibTorch's matmul, 0.53 × its float32 (159): saves memory, costs time");
  EXPECT_TRUE(has(text_of(HalfRate{100, 101}), "saves memory, not time"));
  EXPECT_TRUE(has(text_of(HalfRate{100, 180}), "1.80 × its float32 (100): saves memory and time"));
}

TEST(cli_doctor_advice, the_setting_that_mends_a_slow_BLAS_is_named) {
  BlasRates r;
  r.rates = {{"", "Prescott", 33}, {"Haswell", "Haswell", 90}, {"SkylakeX", "SkylakeX", 159}};
  r.peak = 190;
  r.by_run = "SkylakeX";
  EXPECT_EQ(r.remedy(), "export OPENBLAS_CORETYPE=SkylakeX");
  EXPECT_TRUE(has(all(advise(r)), "33 GFLOP/s where SkylakeX give 159")) << all(advise(r));
  EXPECT_TRUE(has(all(advise(r)), "by themselves"));
  r.user = "Haswell";
  EXPECT_EQ(r.remedy(), "export OPENBLAS_CORETYPE=SkylakeX");
  EXPECT_FALSE(has(all(advise(r)), "by themselves"));
  r.user = "SkylakeX";
  EXPECT_EQ(all(advise(r)), "");
  // The user's choice crashes here.
  r.user = "Cooperlake";
  r.rates.push_back({"Cooperlake", "", 0});
  EXPECT_TRUE(has(all(advise(r)), "does not run on this CPU"));
  // The best is far from what the core could do.
  r.user = "SkylakeX";
  r.peak = 400;
  EXPECT_TRUE(has(all(advise(r)), "newer OpenBLAS")) << all(advise(r));
  // Figures taken while others computed prove little.
  r.foreign = 0.5;
  EXPECT_FALSE(has(all(advise(r)), "newer OpenBLAS"));
  EXPECT_TRUE(has(all(advise(r)), "idle machine"));
  // The default is the best, and the user has chosen another.
  r = {};
  r.user = "Haswell";
  r.rates = {{"", "Zen", 100}, {"Haswell", "Haswell", 60}};
  EXPECT_EQ(r.remedy(), "unset OPENBLAS_CORETYPE");
  r.rates.clear();
  EXPECT_EQ(all(advise(r)), "");
}

TEST(cli_doctor_advice, the_way_to_the_master_is_judged) {
  const Interface lo{"lo", {"127.0.0.1"}, true, true, 65536, 0},
      eth{"eth0", {"10.0.0.2"}, true, false, 1500, 1000},
      ib{"ib0", {"10.1.0.2"}, true, false, 2044, 100000},
      down{"eth1", {"10.2.0.2"}, false, false, 1500, 0};
  Route route;
  EXPECT_EQ(all(advise({lo, eth}, route)), "");  // no master: one host
  route.master = "10.0.0.1";
  route.resolved = "10.0.0.1";
  route.local = "10.0.0.2";
  route.interface = "eth0";
  route.several_hosts = true;
  EXPECT_EQ(all(advise({lo, eth, down}, route)), "");
  EXPECT_TRUE(has(all(advise({lo, eth, ib}, route)), "GLOO_SOCKET_IFNAME=eth0"));
  route.error = "Network is unreachable";
  EXPECT_TRUE(has(all(advise({lo, eth}, route)), "Network is unreachable"));
  route.error.clear();
  route.master = "node1";
  route.resolved = "127.0.1.1";
  EXPECT_TRUE(has(all(advise({lo, eth}, route)), "this host itself"));
  route.several_hosts = false;
  route.own_name = true;
  EXPECT_TRUE(has(all(advise({lo, eth}, route)), "/etc/hosts"));
  route.master = "127.0.0.1";
  EXPECT_EQ(all(advise({lo, eth}, route)), "");
}

TEST(cli_doctor_advice, links_join_every_pair_of_hosts_and_every_rank_with_the_first_of_its_host) {
  EXPECT_TRUE(links_of({0}).empty());
  EXPECT_EQ(links_of({0, 0, 0}), (std::vector<Link>{{0, 1}, {0, 2}}));
  EXPECT_EQ(links_of({0, 0, 1, 1}), (std::vector<Link>{{0, 2}, {0, 1}, {2, 3}}));
  for (int hosts = 1; hosts <= 6; ++hosts)
    for (int each = 1; each <= 4; ++each) {
      std::vector<int> host_of;
      for (int r = 0; r < hosts * each; ++r) host_of.push_back(r % hosts);  // dealt round
      std::set<std::pair<int, int>> pairs;
      int between = 0;
      for (const Link& l : links_of(host_of)) {
        EXPECT_LT(l.from, l.to);
        EXPECT_TRUE(pairs.insert({l.from, l.to}).second);
        between += host_of[static_cast<size_t>(l.from)] != host_of[static_cast<size_t>(l.to)];
      }
      EXPECT_EQ(between, hosts * (hosts - 1) / 2);
      EXPECT_EQ(static_cast<int>(pairs.size()) - between, hosts * (each - 1));
    }
  EXPECT_EQ(links_of(std::vector<int>(100, 0), 10).size(), 10u);
}

TEST(cli_doctor_advice, the_fastest_echo_tells_the_clocks_apart) {
  // The other clock is 5 s ahead; trips of 2 ms and of 20 ms with all delay on the way back.
  const auto d = clock_difference({{10, 15.001, 10.020}, {20, 25.001, 20.002}, {30, 35.01, 30.02}});
  EXPECT_NEAR(d.seconds, 5, 1e-9);
  EXPECT_NEAR(d.error, 0.001, 1e-9);
  EXPECT_EQ(clock_difference({}).seconds, 0);
}

TEST(cli_doctor_advice, alpha_and_beta_give_back_the_times_they_came_from) {
  const LinkModel m = link_model(5e-6, 5e-6 + 4e6 / 1e9, 4e6);
  EXPECT_DOUBLE_EQ(m.alpha, 5e-6);
  EXPECT_NEAR(m.beta, 1e9, 1);
  EXPECT_GT(link_model(2e-6, 1e-6, 1e6).beta, 0);  // noise: the large one was faster
}

TEST(cli_doctor_advice, links_that_fail_lag_or_crawl_are_named) {
  LinkResult l;
  l.link = {0, 1};
  l.from_host = "a";
  l.to_host = "b";
  l.model = {20e-6, 1.1e9};
  l.mbit = 10000;
  EXPECT_EQ(all(advise(std::vector<LinkResult>{l})), "");
  l.model.beta = 0.1e9;
  EXPECT_TRUE(has(all(advise(std::vector<LinkResult>{l})), "8 % of the interface's 1.25"))
      << all(advise(std::vector<LinkResult>{l}));
  l.model.beta = 1.1e9;
  l.clock = {-90, 1e-4};
  const auto clocks = advise(std::vector<LinkResult>{l, l});
  EXPECT_EQ(clocks.size(), 1u);  // once for two hosts
  EXPECT_TRUE(has(all(clocks), "the clock of b is 90.0 s behind that of a"));
  l.error = "nobody answers";
  EXPECT_TRUE(has(all(advise(std::vector<LinkResult>{l})), "firewall"));
}

TEST(cli_doctor_advice, a_list_of_peers_says_who_this_is) {
  const std::vector<std::string> own{"node2", "127.0.0.1", "10.0.0.2"};
  const RankEnv env = env_of_list({"node1", "10.0.0.2", "node3"}, -1, own);
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.world_size, 3);
  EXPECT_EQ(env.master_addr, "node1");
  EXPECT_FALSE(env.single_host());
  EXPECT_EQ(env_of_list({"a", "b"}, 1, own).rank, 1);
  EXPECT_TRUE(env_of_list({"127.0.0.1", "127.0.0.1"}, 1, own).single_host());
  EXPECT_THROW(env_of_list({"127.0.0.1", "127.0.0.1"}, -1, own), UsageError);
  EXPECT_THROW(env_of_list({"a", "b"}, -1, own), UsageError);
  EXPECT_THROW(env_of_list({"a", "b"}, 2, own), UsageError);
  EXPECT_THROW(env_of_list({"node2"}, -1, own), UsageError);
}

TEST(cli_doctor_advice, a_section_survives_its_way_between_ranks) {
  Section s("peers");
  s.row("TCP", "0 - 1");
  s.row("", "0 - 2");
  s.json["n"] = 3;
  s.find("it is slow", "make it fast");
  const Section back = unpack(ordered_json::parse(pack(s).dump()));
  EXPECT_EQ(back.name, s.name);
  EXPECT_EQ(back.rows, s.rows);
  EXPECT_EQ(back.json, s.json);
  EXPECT_EQ(back.findings, s.findings);
  Report report;
  report.sections = {back};
  EXPECT_TRUE(has(report.text(), "1. peers: it is slow\n     -> make it fast"));
  EXPECT_EQ(report.to_json().at("findings").size(), 1u);
}

}  // namespace
}  // namespace trireme::doctor::doctor_advice_test
