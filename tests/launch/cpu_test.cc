// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/cpu.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::launch::cpu_test {
namespace {

// As Linux numbers them: first one thread of every core, then the second threads.
std::vector<Cpu> machine(int packages, int cores, int threads, int first = 0) {
  std::vector<Cpu> cpus;
  for (int t = 0; t < threads; ++t)
    for (int p = 0; p < packages; ++p)
      for (int c = 0; c < cores; ++c) cpus.push_back({first + static_cast<int>(cpus.size()), p, c});
  return cpus;
}

std::map<int, std::pair<int, int>> core_of(const std::vector<Cpu>& cpus) {
  std::map<int, std::pair<int, int>> cores;
  for (const Cpu& cpu : cpus) cores[cpu.id] = {cpu.package, cpu.core};
  return cores;
}

TEST(launch_cpu, a_binding_covers_the_mask_evenly_or_is_not_made) {
  for (int packages : {1, 2})
    for (int cores = 1; cores <= 6; ++cores)
      for (int threads : {1, 2})
        for (int ranks = 1; ranks <= 14; ++ranks) {
          auto cpus = machine(packages, cores, threads, 4);
          auto plan = plan_cpus(cpus, std::nullopt, ranks, {});
          SCOPED_TRACE(::testing::Message() << packages << "x" << cores << "x" << threads << " / "
                                            << ranks << ": " << plan.why);
          ASSERT_EQ(plan.cpus.size(), static_cast<size_t>(ranks));
          EXPECT_GE(plan.threads, 1);
          int all = packages * cores;
          EXPECT_LE(plan.threads * ranks, std::max(all, ranks));
          bool bound = !plan.cpus[0].empty();
          bool even =
              ranks > 1 && (all % ranks == 0 || (all < ranks && all * threads % ranks == 0));
          EXPECT_EQ(bound, even);
          std::map<int, int> owner;
          for (int r = 0; r < ranks; ++r) {
            EXPECT_EQ(plan.cpus[r].size(), bound ? cpus.size() / ranks : 0u);
            for (int cpu : plan.cpus[r]) EXPECT_TRUE(owner.emplace(cpu, r).second) << "shared";
          }
          if (!bound) continue;
          EXPECT_EQ(owner.size(), cpus.size());
          for (const Cpu& cpu : cpus) EXPECT_TRUE(owner.count(cpu.id)) << "outside the mask";
          if (all % ranks == 0)  // then no core is shared by two ranks
            for (const Cpu& a : cpus)
              for (const Cpu& b : cpus)
                if (a.package == b.package && a.core == b.core) {
                  EXPECT_EQ(owner[a.id], owner[b.id]);
                }
        }
}

TEST(launch_cpu, ranks_get_neighbouring_cores_of_one_package) {
  auto cpus = machine(2, 4, 2);
  auto plan = plan_cpus(cpus, std::nullopt, 4, {});
  EXPECT_EQ(plan.cpus[0], (std::vector<int>{0, 1, 8, 9}));
  EXPECT_EQ(plan.cpus[3], (std::vector<int>{6, 7, 14, 15}));
  EXPECT_EQ(plan.threads, 2);
  auto cores = core_of(cpus);
  for (const auto& list : plan.cpus)
    for (int cpu : list) EXPECT_EQ(cores[cpu].first, cores[list[0]].first);
}

TEST(launch_cpu, a_quota_below_the_mask_limits_threads_and_leaves_ranks_free) {
  auto cpus = machine(1, 8, 1);
  auto limited = plan_cpus(cpus, 4.0, 2, {});
  EXPECT_TRUE(limited.cpus[0].empty());
  EXPECT_EQ(limited.threads, 2);
  EXPECT_EQ(plan_cpus(cpus, 0.5, 2, {}).threads, 1);
  EXPECT_FALSE(plan_cpus(cpus, 8.0, 2, {}).cpus[0].empty());
}

TEST(launch_cpu, none_and_lists_do_what_they_say) {
  auto cpus = machine(1, 4, 1);
  auto none = plan_cpus(cpus, std::nullopt, 2, CpuBinding::parse("none"));
  EXPECT_TRUE(none.cpus[0].empty());
  EXPECT_EQ(none.threads, 2);
  auto list = plan_cpus(cpus, std::nullopt, 2, CpuBinding::parse("0,2-3:1"));
  EXPECT_EQ(list.cpus, (std::vector<std::vector<int>>{{0, 2, 3}, {1}}));
  EXPECT_EQ(list.threads, 1);
  EXPECT_THROW(plan_cpus(cpus, std::nullopt, 3, CpuBinding::parse("0:1")), UsageError);
  EXPECT_THROW(plan_cpus(cpus, std::nullopt, 1, CpuBinding::parse("7")), UsageError);
  for (const char* bad : {"", "some", "3-1", "0:", "-1", "0-99999999"})
    EXPECT_THROW(CpuBinding::parse(bad), UsageError) << bad;
}

// `nodes` of `caches` caches of `cores` cores of two hardware threads; two nodes are a package.
std::vector<Cpu> numa_machine(int nodes, int caches, int cores) {
  std::vector<Cpu> cpus;
  for (int t = 0; t < 2; ++t)
    for (int n = 0; n < nodes; ++n)
      for (int c = 0; c < caches * cores; ++c) {
        Cpu cpu;
        cpu.id = static_cast<int>(cpus.size());
        cpu.package = n / 2;
        cpu.core = (n % 2) * caches * cores + c;
        cpu.node = 10 + n;
        cpu.cache = n * caches + c / cores;
        cpus.push_back(cpu);
      }
  return cpus;
}

CpuPlan numa(const std::vector<Cpu>& cpus, int ranks, const char* kind,
             const std::vector<int>& near = {}) {
  return plan_cpus(cpus, std::nullopt, ranks, CpuBinding::parse_numa(kind), near);
}

TEST(launch_cpu, ranks_are_bound_to_nodes_as_evenly_as_they_go) {
  for (int nodes : {1, 2, 4})
    for (int caches : {1, 2})
      for (int cores = 1; cores <= 3; ++cores)
        for (int ranks = 1; ranks <= 9; ++ranks)
          for (const char* kind : {"node", "socket", "exclusive", "core-complex"}) {
            SCOPED_TRACE(::testing::Message() << nodes << "x" << caches << "x" << cores << " / "
                                              << ranks << " " << kind);
            const auto cpus = numa_machine(nodes, caches, cores);
            const int most = (ranks + nodes - 1) / nodes;
            if (kind == std::string("exclusive") && most > caches * cores) {
              EXPECT_THROW(numa(cpus, ranks, kind), UsageError);
              continue;
            }
            const CpuPlan plan = numa(cpus, ranks, kind);
            ASSERT_EQ(plan.cpus.size(), static_cast<size_t>(ranks));
            std::map<int, int> ranks_of_node, takers;
            int last = 0;
            for (const auto& list : plan.cpus) {
              ASSERT_FALSE(list.empty());
              const auto of = [&](int id) { return cpus[static_cast<size_t>(id)]; };
              std::set<int> own_nodes, own_packages, own_caches;
              for (int id : list) {
                own_nodes.insert(of(id).node);
                own_packages.insert(of(id).package);
                own_caches.insert(of(id).cache);
                ++takers[id];
                // Both threads of a core, or neither.
                const int half = static_cast<int>(cpus.size()) / 2;
                EXPECT_TRUE(std::count(list.begin(), list.end(), (id + half) % (2 * half)));
              }
              EXPECT_EQ(own_packages.size(), 1u);
              if (kind != std::string("socket")) {
                EXPECT_EQ(own_nodes.size(), 1u);
              }
              if (kind == std::string("core-complex")) {
                EXPECT_EQ(own_caches.size(), 1u);
              }
              EXPECT_GE(*own_nodes.begin(), last) << "neighbours share a node";
              last = *own_nodes.begin();
              ++ranks_of_node[last];
            }
            for (const auto& [node, count] : ranks_of_node)
              EXPECT_TRUE(count <= most || kind == std::string("socket")) << node;
            for (const auto& [id, count] : takers)
              EXPECT_TRUE(count == 1 || kind != std::string("exclusive")) << id;
            EXPECT_GE(plan.threads, 1);
            const int all = nodes * caches * cores;
            EXPECT_LE(plan.threads * ranks, std::max(all, ranks));
          }
}

TEST(launch_cpu, the_kinds_are_a_node_its_socket_cores_of_it_and_a_cache_of_it) {
  const auto cpus = numa_machine(2, 2, 2);  // node 10: CPUs 0-3 and 8-11; caches 0-1, 2-3
  using Lists = std::vector<std::vector<int>>;
  EXPECT_EQ(numa(cpus, 2, "node").cpus,
            (Lists{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
  EXPECT_EQ(numa(cpus, 1, "socket").cpus[0].size(), 16u);
  EXPECT_EQ(numa(cpus, 4, "exclusive").cpus,
            (Lists{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  EXPECT_EQ(numa(cpus, 3, "core-complex").cpus,
            (Lists{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}}));
  EXPECT_EQ(numa(cpus, 2, "node").threads, 4);
  EXPECT_EQ(numa(cpus, 4, "node").threads, 2) << "two ranks share a node";
  EXPECT_EQ(plan_cpus(cpus, 4.0, 4, CpuBinding::parse_numa("node")).threads, 1);
  for (const char* bad : {"", "nodes", "auto", "0-3", "core_complex"})
    EXPECT_THROW(CpuBinding::parse_numa(bad), UsageError) << bad;
}

TEST(launch_cpu, a_rank_goes_to_the_node_of_its_gpu) {
  const auto cpus = numa_machine(2, 1, 2);
  const auto plan = numa(cpus, 4, "exclusive", {11, 10, 11, 10});
  EXPECT_EQ(plan.cpus, (std::vector<std::vector<int>>{{2, 6}, {0, 4}, {3, 7}, {1, 5}}));
  // Where the node of a GPU is unknown, or outside of what this process may use.
  EXPECT_EQ(numa(cpus, 2, "node", {-1, 99}).cpus, numa(cpus, 2, "node").cpus);
  EXPECT_THROW(numa(cpus, 3, "exclusive", {10, 10, 10}), UsageError);
}

TEST(launch_cpu, a_core_type_is_chosen_only_where_detection_fell_back) {
  CpuModel emerald_rapids{
      "GenuineIntel", "", 6, 207, {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}};
  CpuModel client{"GenuineIntel", "", 6, 170, {"avx2", "fma"}};
  CpuModel old{"GenuineIntel", "", 6, 37, {"sse4_2"}};
  EXPECT_EQ(choose_coretype(emerald_rapids, "Prescott"), "SkylakeX");
  EXPECT_EQ(choose_coretype(client, "Prescott"), "Haswell");
  EXPECT_EQ(choose_coretype(client, "Nehalem"), "Haswell");
  EXPECT_EQ(choose_coretype(old, "Nehalem"), "");
  for (const char* good : {"SkylakeX", "Cooperlake", "SapphireRapids", "Zen", "Haswell"})
    EXPECT_EQ(choose_coretype(emerald_rapids, good), "") << good;
  EXPECT_EQ(choose_coretype(emerald_rapids, ""), "");  // no OpenBLAS, or the user has chosen
}

TEST(launch_cpu, cpuinfo_gives_the_first_processor) {
  auto cpu = parse_cpuinfo(
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: "
      "Some "
      "Xeon\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nvendor_id\t: Other\nflags\t\t: amx\n");
  EXPECT_EQ(cpu.vendor, "GenuineIntel");
  EXPECT_EQ(cpu.model, 207);
  EXPECT_EQ(cpu.name, "Some Xeon");
  EXPECT_TRUE(cpu.has("avx2"));
  EXPECT_FALSE(cpu.has("amx"));
  EXPECT_TRUE(parse_cpuinfo("").vendor.empty());
}

TEST(launch_cpu, the_mask_of_this_process_is_read_whole) {
  auto mask = inherited_affinity();
  ASSERT_FALSE(mask.empty());
  auto cpus = read_cpus();
  ASSERT_EQ(cpus.size(), mask.size());
  for (size_t i = 0; i < mask.size(); ++i) EXPECT_EQ(cpus[i].id, mask[i]);
}

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(launch_cpu, nodes_and_caches_are_read_as_the_kernel_shows_them) {
  PrivateFolder sys;
  const int id = inherited_affinity().front();
  const std::string cpu = sys / ("cpu" + std::to_string(id));
  EXPECT_EQ(read_cpus(sys.path()).front().node, 0) << "nothing is shown";
  put(cpu + "/topology/physical_package_id", "1\n");
  put(cpu + "/topology/core_id", "5\n");
  put(cpu + "/node3/cpulist", "0-3\n");
  put(cpu + "/cache/index0/level", "1\n");
  put(cpu + "/cache/index0/shared_cpu_list", "0\n");
  put(cpu + "/cache/index1/level", "3\n");
  put(cpu + "/cache/index1/shared_cpu_list", "0-3\n");
  const Cpu read = read_cpus(sys.path()).front();
  EXPECT_EQ(read.package, 1);
  EXPECT_EQ(read.core, 5);
  EXPECT_EQ(read.node, 3);
  const auto cpus = read_cpus(sys.path());
  for (size_t i = 1; i < cpus.size(); ++i) EXPECT_NE(cpus[i].cache, read.cache);
}

TEST(launch_cpu, the_least_quota_up_the_cgroup_tree_counts) {
  PrivateFolder root;
  EXPECT_FALSE(cgroup_cpu_quota(root.path()));
  put(root / "proc/self/cgroup", "0::/job/step\n");
  put(root / "sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_FALSE(cgroup_cpu_quota(root.path()));
  put(root / "sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root.path()).value(), 2.5);
  put(root / "proc/self/cgroup", "0::/job/step\n3:cpu,cpuacct:/x\n");
  put(root / "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n");
  put(root / "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root.path()).value(), 0.5);
}

}  // namespace
}  // namespace trireme::launch::cpu_test
