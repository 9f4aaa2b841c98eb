// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/host/memory_room.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/file.h"
#include "trireme/comm/local/waiter.h"

namespace memory_room_test {

// What is left of memory and CPUs, out of folders that look like /proc and /sys.
using namespace trireme;
using namespace trireme::local;

namespace {

class Tree {
 public:
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
  }
  /// The unified tree's memory of one cgroup.
  void memory(const std::string& group, const std::string& max, const std::string& current) {
    file("/sys/fs/cgroup" + group + "/memory.max", max + "\n");
    file("/sys/fs/cgroup" + group + "/memory.current", current + "\n");
  }
  /// Version 1's.
  void memory_v1(const std::string& group, const std::string& limit, const std::string& usage) {
    file("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes", limit + "\n");
    file("/sys/fs/cgroup/memory" + group + "/memory.usage_in_bytes", usage + "\n");
  }
  std::string root() const { return folder_.path(); }

 private:
  PrivateFolder folder_;
};

const char kMachine[] = "MemTotal: 8000000 kB\nMemFree: 100 kB\nMemAvailable:    4000000 kB\n";

}  // namespace

TEST(comm_local_memory_room, without_cgroups_it_is_what_the_machine_has) {
  Tree t;
  t.file("/proc/meminfo", kMachine);
  EXPECT_EQ(memory_room(t.root()).bytes, size_t{4000000} << 10);
  EXPECT_EQ(memory_room(t.root()).limit, "this machine has no more");
  t.file("/proc/self/cgroup", "0::/job\n");
  t.memory("/job", "max", "1000000");
  EXPECT_EQ(memory_room(t.root()).bytes, size_t{4000000} << 10);
}

TEST(comm_local_memory_room, the_tightest_cgroup_up_the_tree_counts) {
  Tree t;
  t.file("/proc/meminfo", kMachine);
  t.file("/proc/self/cgroup", "0::/pod/job\n");
  t.memory("/pod/job", "900000", "100000");
  t.memory("/pod", "1000000", "600000");
  const Room room = memory_room(t.root());
  EXPECT_EQ(room.bytes, 400000u);
  EXPECT_EQ(room.limit, "memory.max of " + t.root() + "/sys/fs/cgroup/pod is 1000000");
  t.memory("/pod", "1000000", "1000001");
  EXPECT_EQ(memory_room(t.root()).bytes, 0u);
}

TEST(comm_local_memory_room, files_that_the_kernel_keeps_are_room) {
  Tree t;
  t.file("/proc/meminfo", kMachine);
  t.file("/proc/self/cgroup", "0::/job\n");
  t.memory("/job", "1000000", "999000");
  t.file("/sys/fs/cgroup/job/memory.stat",
         "anon 100000\nfile 899000\nshmem 300000\ninactive_anon 300000\nactive_file 200000\n"
         "inactive_file 399000\n");
  EXPECT_EQ(memory_room(t.root()).bytes, 1000u + 399000 + 100000);
}

TEST(comm_local_memory_room, cgroups_of_version_1_count_too) {
  Tree t;
  t.file("/proc/meminfo", kMachine);
  t.file("/proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n0::/\n");
  t.file("/sys/fs/cgroup/unified/cgroup.procs", "");
  t.memory_v1("/job", "1000000", "700000");
  t.file("/sys/fs/cgroup/memory/job/memory.stat",
         "inactive_file 5\nactive_file 5\ntotal_inactive_file 30000\ntotal_active_file 20000\n");
  t.memory_v1("", "9223372036854771712", "800000");
  EXPECT_EQ(memory_room(t.root()).bytes, 340000u);
  EXPECT_EQ(memory_room(t.root()).limit,
            "memory.limit_in_bytes of " + t.root() + "/sys/fs/cgroup/memory/job is 1000000");

  EXPECT_EQ(cgroup_cpus(t.root()), 1e9);
  t.file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
  t.file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  t.file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  t.file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(t.root()), 1.5);
}

TEST(comm_local_memory_room, cpus_of_the_unified_tree) {
  Tree t;
  t.file("/proc/self/cgroup", "0::/pod/job\n");
  t.file("/sys/fs/cgroup/pod/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpus(t.root()), 1e9);
  t.file("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_cpus(t.root()), 2.5);
  // In a container of its own the host's path does not exist.
  t.file("/proc/self/cgroup", "0::/kubepods/abc\n");
  t.file("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpus(t.root()), 0.5);
}

}  // namespace memory_room_test
