// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/placement.h"
#include "trireme/launch/roles.h"

namespace trireme::launch {

/// What the workers of a job share.
struct JobEnv {
  std::vector<int> workers_of_nodes = {1};
  int node_rank = 0;
  std::string role = "default";
  std::vector<RoleCount> roles;  // of the whole job; empty: all are `role`
  std::string run_id = "none";
  std::string master_addr;  // "": as the options have it
  int master_port = 0;
  std::string store;        // TRIREME_STORE; "": not set
  std::string secret_file;  // TRIREME_SECRET_FILE; "": not set
  std::string flight_dir;   // TRIREME_JOB_FLIGHT_DIR; "": not set
  std::string snapshots;    // TRIREME_SNAPSHOTS; "": not set
  std::string held;         // TRIREME_HELD_SNAPSHOTS; "": not set
  std::string events;       // TRIREME_EVENTS; "": not set
  std::string member;       // TRIREME_MEMBER of this rank; "": not set
  std::string error_file;   // TORCHELASTIC_ERROR_FILE of this rank; "": not set
  int threads = 1;
  std::string coretype;                // OPENBLAS_CORETYPE; "": not set
  int restarts = 0, max_restarts = 0;  // so far, and at most
  int attempt = 0;                     // TRIREME_ATTEMPT: starts before this one
  std::string claims;                  // TRIREME_CLAIMS and
  int64_t generation = 0;              // … TRIREME_GENERATION; "": neither is set
  bool neighbour = false;              // TRIREME_NEIGHBOUR
};

/// Says to ranks that their launchers hold copies of what ranks of other hosts have in memory.
inline constexpr const char* kNeighbourVariable = "TRIREME_NEIGHBOUR";

using EnvMap = std::map<std::string, std::string>;

/// What a worker's environment gets beside what it inherits. torchrun's names and values,
/// LOCAL_SIZE and CROSS_* (Horovod's and DeepSpeed's), ours, and threads and core type where `user`
/// has not chosen them. Of a launcher that is itself a worker of another, what that one has said to
/// it alone is emptied. Pure.
TRIREME_API EnvMap worker_env(const JobEnv& job, const Placement& at, const Getenv& user);

/// The part that concerns math libraries alone: for a single process as well.
TRIREME_API EnvMap math_env(int threads, const std::string& coretype, const Getenv& user);

/// This process's environment with `changes` laid over it, as execve takes it: "NAME=value".
std::vector<std::string> merged_environment(const EnvMap& changes);

}  // namespace trireme::launch
