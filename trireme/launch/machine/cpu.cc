// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/cpu.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

constexpr int kMostCpus = 1 << 16;

std::vector<int> parse_cpu_list(std::string_view list, const std::string& whole) {
  std::vector<int> cpus;
  for (auto part : split(list, ',')) {
    auto dash = part.find('-');
    auto first = parse_int(part.substr(0, dash));
    auto last = dash == std::string_view::npos ? first : parse_int(part.substr(dash + 1));
    check<UsageError>(
        first && last && *first >= 0 && *first <= *last && *last < kMostCpus,
        "--cpu-binding={}: '{}' is not a CPU or a range of CPUs; write auto, none, or "
        "one list a rank, as 0-3:4-7",
        whole, part);
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

using CoreKey = std::pair<int, int>;
CoreKey core_of(const Cpu& cpu) { return {cpu.package, cpu.core}; }

int count_cores(const std::vector<Cpu>& cpus) {
  std::set<CoreKey> cores;
  for (const Cpu& cpu : cpus) cores.insert(core_of(cpu));
  return static_cast<int>(cores.size());
}

int distinct_cores(const std::vector<Cpu>& all, const std::vector<int>& ids) {
  std::vector<Cpu> chosen;
  for (const Cpu& cpu : all)
    if (std::binary_search(ids.begin(), ids.end(), cpu.id)) chosen.push_back(cpu);
  return count_cores(chosen);
}

CpuPlan plan_list(const std::vector<Cpu>& cpus, int ranks, const CpuBinding& binding) {
  check<UsageError>(static_cast<int>(binding.lists.size()) == ranks,
                    "--cpu-binding names CPUs for {} ranks, but {} are started: write one list a "
                    "rank, as 0-3:4-7",
                    binding.lists.size(), ranks);
  CpuPlan plan;
  int fewest = kMostCpus;
  for (const auto& list : binding.lists) {
    for (int id : list) {
      bool ours =
          std::any_of(cpus.begin(), cpus.end(), [id](const Cpu& cpu) { return cpu.id == id; });
      check<UsageError>(ours,
                        "--cpu-binding: CPU {} is not among those this process may use (see "
                        "'trireme doctor')",
                        id);
    }
    fewest = std::min(fewest, distinct_cores(cpus, list));
  }
  plan.cpus = binding.lists;
  plan.threads = std::max(1, fewest);
  plan.why = "as --cpu-binding says";
  return plan;
}

const char* word_of(CpuBinding::Kind kind) {
  switch (kind) {
    case CpuBinding::kSocket:
      return "socket";
    case CpuBinding::kExclusive:
      return "exclusive";
    case CpuBinding::kCoreComplex:
      return "core-complex";
    default:
      return "node";
  }
}

// What the `member`-th of `members` ranks of a node gets of it.
std::vector<int> part_of_node(const std::vector<Cpu>& all, int node, int member, int members,
                              CpuBinding::Kind kind) {
  std::set<int> packages, caches;
  std::set<CoreKey> cores;
  for (const Cpu& cpu : all)
    if (cpu.node == node) {
      packages.insert(cpu.package);
      caches.insert(cpu.cache);
      cores.insert(core_of(cpu));
    }
  const auto chosen = [&](auto&& wanted) {
    std::vector<int> ids;
    for (const Cpu& cpu : all)
      if (wanted(cpu)) ids.push_back(cpu.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  const auto nth = [](const auto& set, int n) { return *std::next(set.begin(), n); };
  if (kind == CpuBinding::kSocket)
    return chosen([&](const Cpu& cpu) { return packages.count(cpu.package) > 0; });
  if (kind == CpuBinding::kCoreComplex) {
    const int cache = nth(caches, member % static_cast<int>(caches.size()));
    return chosen([&](const Cpu& cpu) { return cpu.node == node && cpu.cache == cache; });
  }
  if (kind == CpuBinding::kNode) return chosen([&](const Cpu& cpu) { return cpu.node == node; });
  const int count = static_cast<int>(cores.size());
  check<UsageError>(
      count >= members,
      "--numa-binding=exclusive: node {} has {} core(s) for {} ranks: start fewer, or "
      "write --numa-binding=node",
      node, count, members);
  std::set<CoreKey> own;
  for (int i = member * count / members; i < (member + 1) * count / members; ++i)
    own.insert(nth(cores, i));
  return chosen([&](const Cpu& cpu) { return cpu.node == node && own.count(core_of(cpu)) > 0; });
}

CpuPlan plan_numa(const std::vector<Cpu>& cpus, std::optional<double> quota, int ranks,
                  CpuBinding::Kind kind, const std::vector<int>& near) {
  std::set<int> nodes;
  for (const Cpu& cpu : cpus) nodes.insert(cpu.node);
  const int count = static_cast<int>(nodes.size());
  std::map<int, std::vector<int>> members;  // ranks of each node
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const bool known = r < near.size() && nodes.count(near[r]) > 0;
    // Without a device that lies somewhere, neighbours share a node.
    members[known ? near[r] : *std::next(nodes.begin(), rank * count / ranks)].push_back(rank);
  }
  CpuPlan plan;
  plan.cpus.resize(static_cast<size_t>(ranks));
  std::map<std::vector<int>, int> sharing;
  for (const auto& [node, of_node] : members)
    for (size_t i = 0; i < of_node.size(); ++i) {
      auto& own = plan.cpus[static_cast<size_t>(of_node[i])];
      own = part_of_node(cpus, node, static_cast<int>(i), static_cast<int>(of_node.size()), kind);
      ++sharing[own];
    }
  int threads = kMostCpus;
  for (const auto& [list, sharers] : sharing)
    threads = std::min(threads, distinct_cores(cpus, list) / sharers);
  if (quota) threads = std::min(threads, static_cast<int>(*quota / ranks + 1e-9));
  plan.threads = std::max(1, threads);
  plan.why = fmt::format("as --numa-binding={} says, on {} of {} node(s)", word_of(kind),
                         members.size(), count);
  return plan;
}

}  // namespace

CpuBinding CpuBinding::parse(const std::string& text) {
  CpuBinding binding;
  if (text == "auto") return binding;
  if (text == "none") {
    binding.kind = kNone;
    return binding;
  }
  binding.kind = kList;
  for (auto list : split(text, ':')) binding.lists.push_back(parse_cpu_list(list, text));
  return binding;
}

CpuBinding CpuBinding::parse_numa(const std::string& text) {
  CpuBinding binding;
  for (const Kind kind : {kNode, kSocket, kExclusive, kCoreComplex})
    if (text == word_of(kind)) {
      binding.kind = kind;
      return binding;
    }
  fail<UsageError>("--numa-binding={}: write node, socket, exclusive or core-complex", text);
}

CpuPlan plan_cpus(const std::vector<Cpu>& cpus, std::optional<double> quota, int ranks,
                  const CpuBinding& binding, const std::vector<int>& near) {
  if (binding.kind == CpuBinding::kList) return plan_list(cpus, ranks, binding);
  if (binding.kind != CpuBinding::kAuto && binding.kind != CpuBinding::kNone)
    return plan_numa(cpus, quota, ranks, binding.kind, near);

  CpuPlan plan;
  plan.cpus.resize(static_cast<size_t>(ranks));
  int count = static_cast<int>(cpus.size());
  int cores = count_cores(cpus);
  bool limited = quota && *quota < count;
  double usable = limited ? std::min<double>(*quota, cores) : cores;
  plan.threads = std::max(1, static_cast<int>(std::floor(usable / ranks + 1e-9)));

  if (binding.kind == CpuBinding::kNone) {
    plan.why = "no binding: --cpu-binding none";
  } else if (ranks == 1) {
    plan.why = "no binding: one rank has the whole mask";
  } else if (limited) {
    plan.why = fmt::format("no binding: a cgroup allows {:.1f} of {} CPUs", *quota, count);
  } else if (cores % ranks != 0 && (cores >= ranks || count % ranks != 0)) {
    plan.why = fmt::format("no binding: {} cores do not divide among {} ranks", cores, ranks);
  } else {
    auto order = cpus;
    std::sort(order.begin(), order.end(), [](const Cpu& a, const Cpu& b) {
      return std::tuple(a.package, a.core, a.id) < std::tuple(b.package, b.core, b.id);
    });
    bool by_core = cores % ranks == 0;
    int share = (by_core ? cores : count) / ranks;
    int index = -1;  // of the core, or of the hardware thread
    for (size_t i = 0; i < order.size(); ++i) {
      if (!by_core || i == 0 || core_of(order[i]) != core_of(order[i - 1])) ++index;
      plan.cpus[static_cast<size_t>(index / share)].push_back(order[i].id);
    }
    for (auto& list : plan.cpus) std::sort(list.begin(), list.end());
    plan.why = fmt::format("bound: {} {}(s) a rank", share, by_core ? "core" : "hardware thread");
  }
  return plan;
}

std::string choose_coretype(const CpuModel& cpu, std::string_view detected) {
  // Kernel sets made for AVX2 or more, under the names 0.3.x gives them. Anything else on such a
  // CPU is a fall-back to a set several times slower.
  static const std::set<std::string_view> good{
      "Haswell", "Zen", "Excavator", "SkylakeX", "Cooperlake", "SapphireRapids", "GraniteRapids"};
  if (detected.empty() || good.count(detected)) return "";
  bool avx512 =
      cpu.has("avx512f") && cpu.has("avx512bw") && cpu.has("avx512dq") && cpu.has("avx512vl");
  if (avx512) return "SkylakeX";
  if (cpu.has("avx2") && cpu.has("fma")) return "Haswell";
  return "";
}

}  // namespace trireme::launch
