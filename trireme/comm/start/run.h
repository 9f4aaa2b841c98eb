// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

// Starting to communicate: this process joins its world, or one program runs several ranks.
namespace trireme {

struct InitOptions {
  /// "local": ranks of one host. "gloo", "mpi": ranks on several. "hybrid": local inside each host,
  /// `across` between hosts. "nccl": CUDA tensors. "fake": nothing is moved. "cpu:local,cuda:nccl":
  /// by device.
  std::string backend = "local";
  std::string across = "gloo";
  /// How ranks of a backend other than local (which always compares every call) find out that they
  /// call different things. "each": one small exchange before every collective. "hash": after every
  /// 64 and, but for nccl, when one has made a rank wait for a second: then ranks that wait for
  /// each other or for one that left raise too, and one that is late is told of in the log. "off".
  std::string check = "hash";
  /// Where `trireme bench --tune` has measured this kind of host, all_reduce goes by the algorithm
  /// that was the fastest at its size; false: by the backend's own.
  bool tuned = true;
  Duration timeout = std::chrono::minutes(10);
  /// env:// reads who this process is from the variables of torchrun, trireme run, Open MPI, MPICH,
  /// Slurm, …; without any it is a world of one. tcp://host:port and
  /// file:///path (a file that all ranks reach and that does not exist yet) need rank and
  /// world_size.
  std::string init_method = "env://";
  int rank = -1;
  int world_size = -1;
};

/// Every rank of the world calls it. Throws UsageError (variables that contradict each other, wrong
/// secret), Timeout naming the ranks that did not come, ResourceError. A process that was started
/// bare gets OpenBLAS's right kernels here (OPENBLAS_CORETYPE). Where TRIREME_FLIGHT_DIR names a
/// folder (trireme train sets it), the last calls of this rank are written there when a group
/// fails, on SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT (a handler of the program's runs behind
/// that), and on SIGUSR2 unless the program handles it: `trireme trace flight` reads them.
TRIREME_API Group init_process_group(const InitOptions& options = {});

/// Runs fn as n ranks, one thread each, and returns when all have. What a rank throws ends the
/// group for all; the first cause is rethrown here.
TRIREME_API void run_threads(int n, const std::function<void(Group)>& fn,
                             Duration timeout = std::chrono::minutes(10));

struct ThreadOptions {
  Duration timeout = std::chrono::minutes(10);
  std::string backend = "local";  // one that lives with ranks as threads: local, gloo, fake
  std::string check = "hash";     // as in InitOptions
};
TRIREME_API void run_threads(int n, const std::function<void(Group)>& fn,
                             const ThreadOptions& options);

struct SpawnOptions {
  Duration timeout = std::chrono::minutes(10);
  std::string backend = "local";
  std::string check = "hash";  // as in InitOptions
  /// Replace this program's arguments in the ranks (a test runner's filter, say).
  std::vector<std::string> args;
  /// "NAME=value" entries for a rank's environment, before those that say who it is.
  std::function<std::vector<std::string>(int rank)> env;
};

/// Runs fn as n processes and returns when all have ended. Each is this program started again (fork
/// and exec: safe whatever threads run here): it must reach the same spawn call, does fn there and
/// exits. A rank that throws or dies stops the others within 5 s; the first cause is thrown here as
/// PeerLost.
TRIREME_API void spawn(int n, const std::function<void(Group)>& fn,
                       const SpawnOptions& options = {}, CallSite site = CallSite::here());

}  // namespace trireme
