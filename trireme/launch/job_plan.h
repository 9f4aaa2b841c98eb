// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/machine/cpu.h"
#include "trireme/launch/machine/gpu.h"
#include "trireme/launch/worker_env.h"

// Everything that is decided before a worker starts. plan_job() is pure.
namespace trireme::launch {

struct Machine {
  std::vector<Cpu> cpus;
  std::optional<double> quota;
  CpuModel model;
  std::string blas_corename;  // what OpenBLAS detects by itself; "": not asked, or not there
  std::vector<Gpu> gpus;      // those that workers may use
};
/// OpenBLAS is asked only where its answer could matter: the user has not chosen a core type.
TRIREME_API Machine read_machine(const Getenv& user = process_env);

struct WorkerPlan {
  int local_rank = 0;
  std::string program;
  std::vector<std::string> argv;
  EnvMap env;             // beside what is inherited
  std::vector<int> cpus;  // empty: the inherited mask
};

struct JobPlan {
  std::vector<WorkerPlan> workers;
  std::string why_cpus;
};

/// `job` brings what is settled at run time: run id, port, store, secret.
TRIREME_API JobPlan plan_job(const RunOptions& options, const std::vector<std::string>& command,
                             const Machine& machine, JobEnv job, const Getenv& user);

/// For --dry-run: {"workers": [{"local_rank", "command", "env", "cpus"}], …}.
TRIREME_API std::string to_json(const JobPlan& plan);

}  // namespace trireme::launch
