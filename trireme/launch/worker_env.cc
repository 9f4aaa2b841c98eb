// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/worker_env.h"

#include <unistd.h>

#include <initializer_list>

#include "trireme/base/events/handover.h"
#include "trireme/base/process/flight_variables.h"
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"
#include "trireme/rendezvous/generations.h"

namespace trireme::launch {
namespace {

/// What a launcher says to its own workers, and to nobody whom these start through another
/// launcher. "": nothing. The list of all such variables; TRIREME_SPAWN is no launcher's: who has
/// it is a rank of trireme::spawn() in some program, and the workers are none.
EnvMap said_to_workers(const JobEnv& job, const Role& role) {
  const bool counted = !job.roles.empty();
  return {{"TRIREME_ROLE", counted ? role.name : ""},
          {"TRIREME_ROLE_RANK", counted ? std::to_string(role.rank) : ""},
          {"TRIREME_ROLE_SIZE", counted ? std::to_string(role.size) : ""},
          {"TRIREME_ATTEMPT", std::to_string(job.attempt)},
          {"TRIREME_STORE", job.store},
          {"TRIREME_SPAWN", ""},
          {kMemberVariable, job.member},
          {kSnapshotsVariable, job.snapshots},
          {kHeldSnapshotsVariable, job.held},
          {kNeighbourVariable, job.neighbour ? "1" : ""},
          {kEventsVariable, job.events},
          {kJobFlightVariable, job.flight_dir}};
}

}  // namespace

EnvMap math_env(int threads, const std::string& coretype, const Getenv& user) {
  EnvMap env;
  std::string count = std::to_string(threads);
  // OpenBLAS reads OMP_NUM_THREADS where its own variable is absent, so a user's choice of that one
  // rules both.
  bool omp = user("OMP_NUM_THREADS").has_value();
  if (!omp) env["OMP_NUM_THREADS"] = count;
  if (!omp && !user("OPENBLAS_NUM_THREADS")) env["OPENBLAS_NUM_THREADS"] = count;
  if (!coretype.empty() && !user("OPENBLAS_CORETYPE")) env["OPENBLAS_CORETYPE"] = coretype;
  return env;
}

EnvMap worker_env(const JobEnv& job, const Placement& at, const Getenv& user) {
  EnvMap env = math_env(job.threads, job.coretype, user);
  const auto put = [&env](std::initializer_list<const char*> names, int value) {
    for (const char* name : names) env[name] = std::to_string(value);
  };
  const Role role =
      job.roles.empty() ? Role{job.role, at.rank, at.world} : role_of(job.roles, at.rank);
  put({"RANK"}, at.rank);
  put({"ROLE_RANK"}, role.rank);
  put({"WORLD_SIZE"}, at.world);
  put({"ROLE_WORLD_SIZE"}, role.size);
  put({"LOCAL_RANK"}, at.local_rank);
  put({"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}, at.local_world);
  put({"GROUP_RANK", "CROSS_RANK"}, at.node_rank);
  put({"GROUP_WORLD_SIZE", "CROSS_SIZE"}, at.nodes);
  env["ROLE_NAME"] = role.name;
  env["MASTER_ADDR"] = job.master_addr;
  env["MASTER_PORT"] = std::to_string(job.master_port);
  env["TORCHELASTIC_RESTART_COUNT"] = std::to_string(job.restarts);
  env["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(job.max_restarts);
  // Empty where this launcher has nothing to say and is itself a worker of another that has.
  for (const auto& [name, value] : said_to_workers(job, role))
    if (!value.empty() || user(name)) env[name] = value;
  // Where it claims nothing itself, its workers are in the generation of the job that it is a part
  // of: when others go on without that one, they publish nothing either.
  if (!job.claims.empty()) {
    env[GenerationFence::kPathVariable] = job.claims;
    env[GenerationFence::kNumberVariable] = std::to_string(job.generation);
  }
  env["TORCHELASTIC_RUN_ID"] = job.run_id;
  // MASTER_PORT is free: rank 0 of a Python job opens its own store there.
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  if (!job.error_file.empty()) env["TORCHELASTIC_ERROR_FILE"] = job.error_file;
  if (!user("TORCH_NCCL_ASYNC_ERROR_HANDLING")) env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1";
  if (!job.secret_file.empty()) env["TRIREME_SECRET_FILE"] = job.secret_file;
  return env;
}

std::vector<std::string> merged_environment(const EnvMap& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry; ++entry) {
    std::string text(*entry);
    if (!changes.count(text.substr(0, text.find('=')))) merged.push_back(std::move(text));
  }
  for (const auto& [name, value] : changes) merged.push_back(name + "=" + value);
  return merged;
}

}  // namespace trireme::launch
