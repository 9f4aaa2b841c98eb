// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/net/secret.h"
#include "trireme/rendezvous/hydra.h"

namespace trireme {

/// Who this process is, as whoever started it says.
struct TRIREME_API RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;  // ranks on this host; 0: not known
  int node_rank = 0;         // -1: not known
  std::string master_addr;   // the host of rank 0; "": not known
  int master_port = 29500;
  std::string job_id;  // the same on every rank of a job; may be ""
  int attempt = 0;     // how often the job was started again
  /// torchrun or `trireme run` started this process and watches it: RANK and WORLD_SIZE count
  /// ranks, and not pods or tasks in which a launcher is to start them.
  bool has_agent = false;
  std::string store_endpoint;  // TRIREME_STORE: our launcher serves a store there; "": it does not
  /// "torchrun variables", "Open MPI", "MVAPICH", "PMI", "Slurm" or "none".
  std::string source = "none";

  /// All ranks on this host: the counts say so, or, where they are not known, a loopback
  /// master_addr does.
  bool single_host() const;
};

/// Reads the first of these that says who we are; what is said twice must agree.
///   torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT
///              TORCHELASTIC_RUN_ID
///   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMIX_NAMESPACE
///   MVAPICH    MV2_COMM_WORLD_RANK, …
///   PMI        PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS (MPICH, Intel MPI, Hydra, Flux);
///              where all ranks are on this host, its job is what `launcher_job` says
///   Slurm      SLURM_PROCID … inside a job step (srun); a batch script or an salloc shell is a
///              world of one
///   none       a world of one
/// MASTER_ADDR, MASTER_PORT and TRIREME_STORE count whatever the source. An empty variable is one
/// that is not set. UsageError naming variables and values: not a number, rank beyond the world,
/// sources that disagree.
TRIREME_API RankEnv read_rank_env(const net::Getenv& env = net::process_env,
                                  const std::function<std::string()>& launcher_job = own_hydra_job);

}  // namespace trireme
