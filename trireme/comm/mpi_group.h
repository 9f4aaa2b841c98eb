// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>

#include "trireme/comm/group.h"

// A Group over an MPI communicator, for programs that call MPI themselves.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
//   trireme::Group group = trireme::mpi_group(MPI_COMM_WORLD);
namespace trireme {

namespace detail {
TRIREME_API Group mpi_group(const void* comm, size_t bytes, bool is_pointer, Duration timeout,
                            const std::string& check);
}

/// Makes a group of the mpi backend from the ranks of `comm`, in its order; that group is its
/// world. The backend works on a duplicate of `comm`, so your messages and the group's never mix,
/// and you keep ownership of `comm`.
///
/// Threads: MPI must have been initialised with MPI_THREAD_SERIALIZED or MULTIPLE; MPI_Init alone
/// provides less and is refused. With SERIALIZED, your own MPI calls and calls on groups must not
/// run at the same time; groups synchronise among themselves. Ranks: every rank of `comm` must call
/// it, once per group. Errors: UsageError (no communicator, an inter-communicator, too low a thread
/// level, no module for your MPI in this build), Timeout. An MPI error in a group throws; it never
/// ends the process. check: as in InitOptions (comm/start/run.h). The last calls are recorded and
/// dumped as described there. Lifetime: destroy the groups before you call MPI_Finalize. A group
/// that outlives MPI_Finalize can no longer be used but does no harm.
///
/// Comm is MPI_Comm: a pointer in Open MPI, an int in MPICH and those that share its ABI.
template <class Comm>
Group mpi_group(Comm comm, Duration timeout = std::chrono::minutes(10),
                const std::string& check = "hash") {
  static_assert(std::is_same_v<Comm, int> || std::is_pointer_v<Comm>, "this is no MPI_Comm");
  return detail::mpi_group(&comm, sizeof comm, std::is_pointer_v<Comm>, timeout, check);
}

}  // namespace trireme
