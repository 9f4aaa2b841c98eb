// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

// How ranks start: a process joins its world, or one program runs several ranks.
namespace trireme {

struct InitOptions {
  /// The backend. "local": ranks of one host (else hybrid). "gloo", "mpi": several hosts. "hybrid":
  /// local inside each host, `across` between hosts. "nccl": CUDA tensors. "fake": moves no data.
  /// "cpu:local,cuda:nccl": one backend per device type.
  std::string backend = "local";
  std::string across = "gloo";
  /// How ranks of a backend other than local (which always compares every call) detect that they
  /// call different things. "each": a small exchange before every collective. "hash": an exchange
  /// after every 64 calls and, except on nccl, whenever a rank has waited for a second; it then
  /// also raises on ranks that wait for each other or for a rank that left, and logs which rank is
  /// late. "off": no checks.
  std::string check = "hash";
  /// If true and `trireme bench --tune` has measured this kind of host, all_reduce uses the
  /// algorithm that was fastest at its size. If false, it uses the backend's own algorithm.
  bool tuned = true;
  /// The deadline for joining the world, and for each call of its groups.
  Duration timeout = std::chrono::minutes(10);
  /// env:// reads rank and world size from the variables of torchrun, trireme run, Open MPI, MPICH,
  /// Slurm and others; if none are set, the world has one rank. tcp://host:port and file:///path (a
  /// file that all ranks can reach and that does not exist yet) need rank and world_size.
  std::string init_method = "env://";
  int rank = -1;
  int world_size = -1;
};

/// Joins the world; every rank must call it. Throws UsageError (contradictory variables, wrong
/// secret), Timeout naming the missing ranks, or ResourceError. In a process that no launcher
/// started, it also selects OpenBLAS's kernels (OPENBLAS_CORETYPE). If TRIREME_FLIGHT_DIR names a
/// folder (trireme train sets it), the last calls of this rank are written there when a group
/// fails, on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (the program's own handler runs
/// afterwards), and on SIGUSR2 unless the program handles it. `trireme trace flight` reads these
/// files.
TRIREME_API Group init_process_group(const InitOptions& options = {});

/// Runs fn as n ranks, one thread each, and returns when all have returned. An exception on one
/// rank ends the group for all of them; the first cause is rethrown here.
TRIREME_API void run_threads(int n, const std::function<void(Group)>& fn,
                             Duration timeout = std::chrono::minutes(10));

struct ThreadOptions {
  Duration timeout = std::chrono::minutes(10);
  std::string backend = "local";  // one that allows ranks as threads: local, gloo, fake
  std::string check = "hash";     // as in InitOptions
};
TRIREME_API void run_threads(int n, const std::function<void(Group)>& fn,
                             const ThreadOptions& options);

struct SpawnOptions {
  Duration timeout = std::chrono::minutes(10);
  std::string backend = "local";
  std::string check = "hash";  // as in InitOptions
  /// Replaces this program's arguments in the ranks, such as a test runner's filter.
  std::vector<std::string> args;
  /// "NAME=value" entries for a rank's environment, placed before those that identify the rank.
  std::function<std::vector<std::string>(int rank)> env;
};

/// Runs fn as n processes and returns when all have exited. Each process is this program started
/// again (by fork and exec, so other threads may be running here). It must reach the same spawn
/// call, runs fn there and exits. If a rank throws or dies, the others are stopped within 5 s and
/// the first cause is thrown here as PeerLost.
TRIREME_API void spawn(int n, const std::function<void(Group)>& fn,
                       const SpawnOptions& options = {}, CallSite site = CallSite::here());

}  // namespace trireme
