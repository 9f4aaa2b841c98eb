// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// What this process may use of the machine, and how ranks share it. Reading is apart from deciding:
// plan_cpus() and choose_coretype() are pure.
namespace trireme::launch {

/// One logical CPU of the inherited mask. CPUs with the same (package, core) are hardware threads
/// of one core; those with the same `node` are near the same memory, and those with the same
/// `cache` (a number for it) share the last level of cache.
struct Cpu {
  int id = 0;
  int package = 0;
  int core = 0;
  int node = 0;
  int cache = 0;
};

struct CpuModel {
  std::string vendor;  // "GenuineIntel"; empty where /proc/cpuinfo does not say
  std::string name;
  int family = 0;
  int model = 0;
  std::set<std::string, std::less<>> flags;
  bool has(std::string_view flag) const { return flags.find(flag) != flags.end(); }
};

/// The CPUs of sched_getaffinity, ascending.
TRIREME_API std::vector<int> inherited_affinity();
/// The same with where they lie, from `sys` (/sys/devices/system/cpu); unknown: a core of its own,
/// on node 0, with the cache of its package.
TRIREME_API std::vector<Cpu> read_cpus(const std::string& sys = "/sys/devices/system/cpu");
/// The first processor of /proc/cpuinfo's text.
TRIREME_API CpuModel parse_cpuinfo(std::string_view text);
/// CPUs' worth of time that cgroups (v2 cpu.max, v1 cfs_quota_us) allow, the least up the tree;
/// nullopt: no limit. `root` is put before /proc and /sys, for tests.
TRIREME_API std::optional<double> cgroup_cpu_quota(const std::string& root = "");

/// --cpu-binding: auto, none, or one list of CPUs a rank, as 0-3:4-7. --numa-binding: torchrun's.
struct TRIREME_API CpuBinding {
  enum Kind { kAuto, kNone, kList, kNode, kSocket, kExclusive, kCoreComplex };
  Kind kind = kAuto;
  std::vector<std::vector<int>> lists;  // kList: ascending, one a rank
  static CpuBinding parse(const std::string& text);
  /// node, socket, exclusive or core-complex.
  static CpuBinding parse_numa(const std::string& text);
};

struct CpuPlan {
  std::vector<std::vector<int>> cpus;  // of each local rank; empty: left in the inherited mask
  int threads = 1;                     // of each rank's math libraries
  std::string why;                     // one clause for doctor and the log
};

/// auto binds only when the ranks use the whole mask evenly: cores (else hardware threads) divide
/// by ranks, and no quota is smaller than the mask. Each rank gets neighbours of the order
/// (package, core).
///
/// The kinds of --numa-binding put each rank on the node that `near` has for it (of its GPU; -1, or
/// no entry: unknown), and deal ranks without one to the nodes, neighbours together. A rank gets
/// all CPUs of its node (node), all of that node's sockets (socket), cores of the node that no
/// other rank gets (exclusive), or all that share one of the node's last-level caches
/// (core-complex). UsageError where a node has fewer cores than ranks that want cores of their own.
TRIREME_API CpuPlan plan_cpus(const std::vector<Cpu>& cpus, std::optional<double> quota, int ranks,
                              const CpuBinding& binding, const std::vector<int>& near = {});

/// The OPENBLAS_CORETYPE that mends a detection of `detected` (openblas_get_corename) on this CPU,
/// or "" where OpenBLAS did well or is not there (detected empty). Debian's 0.3.21 falls to SSE
/// kernels on newer Intel cores.
TRIREME_API std::string choose_coretype(const CpuModel& cpu, std::string_view detected);

}  // namespace trireme::launch
