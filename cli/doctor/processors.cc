// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <set>

#include "cli/doctor/sections.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::doctor {

Section processors(const launch::Machine& machine, const Options& options) {
  Section s("processors");
  std::set<std::pair<int, int>> cores;
  std::set<int> packages;
  std::vector<int> ids;
  for (const auto& cpu : machine.cpus) {
    cores.insert({cpu.package, cpu.core});
    packages.insert(cpu.package);
    ids.push_back(cpu.id);
  }
  const bool avx512 = machine.model.has("avx512vl") && machine.model.has("avx512bw");
  const int count = static_cast<int>(cores.size());
  const int ranks = options.ranks > 0 ? options.ranks : count;
  const auto plan = launch::plan_cpus(machine.cpus, machine.quota, ranks, {});
  ordered_json ranks_cpus = ordered_json::array();
  for (const auto& list : plan.cpus) ranks_cpus.push_back(text_of_list(list));
  std::string nodes(
      launch::trim(launch::read_if_there("/sys/devices/system/node/online").value_or("0")));
  s.json = {{"model", machine.model.name},
            {"avx2", machine.model.has("avx2")},
            {"avx512", avx512},
            {"cpus", text_of_list(ids)},
            {"cores", count},
            {"packages", packages.size()},
            {"numa_nodes", nodes},
            {"cgroup_cpus", machine.quota ? ordered_json(*machine.quota) : ordered_json(nullptr)},
            {"run",
             {{"nproc_per_node", ranks},
              {"threads_per_rank", plan.threads},
              {"binding", plan.why},
              {"cpus", ranks_cpus}}}};
  s.row("model", fmt::format("{}{}{}", machine.model.name,
                             machine.model.has("avx2") ? ", AVX2" : "", avx512 ? ", AVX-512" : ""));
  s.row("CPUs",
        fmt::format("{}: {} core(s), {} package(s), NUMA node(s) {}{}", text_of_list(ids), count,
                    packages.size(), nodes,
                    machine.quota ? fmt::format("; a cgroup allows {:.1f} CPUs", *machine.quota)
                                  : ", no cgroup limit"));
  s.row("run",
        fmt::format("--nproc-per-node {}: {} thread(s) a rank; {}", ranks, plan.threads, plan.why));
  for (size_t rank = 0; rank < plan.cpus.size() && rank < 8; ++rank)
    if (!plan.cpus[rank].empty())
      s.row("", fmt::format("rank {}: CPUs {}", rank, text_of_list(plan.cpus[rank])));
  ordered_json variables = ordered_json::object();
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const auto value = launch::process_env(name);
    if (!value) continue;
    variables[name] = *value;
    s.row(name, *value);
    const auto threads = launch::parse_int(*value);
    if (threads && *threads > plan.threads)
      s.find(fmt::format("{}={}: {} ranks of that many threads share {} core(s), and threads that "
                         "wait for each other spin",
                         name, *value, ranks, count),
             fmt::format("unset {} ('trireme run' sets {} a rank)", name, plan.threads));
  }
  s.json["environment"] = variables;
  return s;
}

}  // namespace trireme::doctor
