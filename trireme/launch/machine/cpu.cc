// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/cpu.h"

#include <algorithm>
#include <cmath>
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

CpuPlan plan_cpus(const std::vector<Cpu>& cpus, std::optional<double> quota, int ranks,
                  const CpuBinding& binding) {
  if (binding.kind == CpuBinding::kList) return plan_list(cpus, ranks, binding);

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
