// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/job_plan.h"

#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/machine/blas_probe.h"
#include "trireme/launch/process/proc_text.h"
#include "trireme/launch/process/process.h"

namespace trireme::launch {

Machine read_machine(const Getenv& user) {
  Machine machine;
  machine.cpus = read_cpus();
  machine.quota = cgroup_cpu_quota();
  machine.gpus = visible_gpus(user);
  machine.model = parse_cpuinfo(read_if_there("/proc/cpuinfo").value_or(""));
  if (!user("OPENBLAS_CORETYPE") && machine.model.has("avx2"))
    machine.blas_corename = probe_openblas().corename;
  return machine;
}

JobPlan plan_job(const RunOptions& options, const std::vector<std::string>& command,
                 const Machine& machine, JobEnv job, const Getenv& user) {
  check<UsageError>(
      !command.empty(),
      "no program to start: trireme run [FLAGS] PROGRAM [ARGUMENTS] (see 'trireme run "
      "--help')");
  std::vector<std::string> words = command;
  if (command[0].ends_with(".py") && !options.no_python) {
    auto python = user("PYTHON_EXEC");
    words.insert(words.begin(), {python && !python->empty() ? *python : "python3", "-u"});
  }
  std::string program = find_program(words[0]);

  std::vector<int> near;
  for (const Gpu& gpu : machine.gpus) near.push_back(gpu.node);
  CpuPlan cpu =
      plan_cpus(machine.cpus, machine.quota, options.nproc_per_node, options.cpu_binding, near);
  const auto gpus = static_cast<int>(machine.gpus.size());
  check<UsageError>(
      !options.virtual_local_rank || gpus == 0 || gpus >= options.nproc_per_node,
      "--virtual-local-rank gives each worker a GPU, and there are {} for {} workers: "
      "start fewer, or leave it out",
      gpus, options.nproc_per_node);
  if (options.nodes == 1) job.workers_of_nodes = {options.nproc_per_node};
  job.role = options.role;
  job.roles = options.roles;
  job.max_restarts = options.max_restarts;
  job.neighbour = options.neighbour_copies;
  if (job.master_addr.empty()) job.master_addr = options.master_addr;
  job.threads = cpu.threads;
  job.coretype = choose_coretype(machine.model, machine.blas_corename);

  JobPlan plan;
  plan.why_cpus = cpu.why;
  for (int rank = 0; rank < options.nproc_per_node; ++rank) {
    WorkerPlan worker;
    worker.local_rank = rank;
    worker.program = program;
    worker.argv = words;
    for (auto& word : worker.argv) replace_all(word, "${local_rank}", std::to_string(rank));
    worker.env = worker_env(job, place(job.workers_of_nodes, job.node_rank, rank), user);
    if (options.virtual_local_rank) {
      worker.env["LOCAL_RANK"] = "0";
      if (gpus > 0)
        worker.env["CUDA_VISIBLE_DEVICES"] = machine.gpus[static_cast<size_t>(rank)].name;
    }
    worker.cpus = cpu.cpus[static_cast<size_t>(rank)];
    plan.workers.push_back(std::move(worker));
  }
  return plan;
}

std::string to_json(const JobPlan& plan) {
  using nlohmann::ordered_json;
  ordered_json workers = ordered_json::array();
  for (const WorkerPlan& worker : plan.workers) {
    ordered_json env = ordered_json::object();
    for (const auto& [name, value] : worker.env) env[name] = value;
    workers.push_back({{"local_rank", worker.local_rank},
                       {"program", worker.program},
                       {"command", worker.argv},
                       {"env", env},
                       {"cpus", worker.cpus}});
  }
  ordered_json json{{"workers", workers}, {"cpu_binding", plan.why_cpus}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace trireme::launch
