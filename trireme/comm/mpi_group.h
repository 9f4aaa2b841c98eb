// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>

#include "trireme/comm/group.h"

// A Group over the communicator of a program that uses MPI itself.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
//   trireme::Group group = trireme::mpi_group(MPI_COMM_WORLD);
namespace trireme {

namespace detail {
TRIREME_API Group mpi_group(const void* comm, size_t bytes, bool is_pointer, Duration timeout,
                            const std::string& check);
}

/// The ranks of `comm`, in its order, as a group of the mpi backend; it is that group's world. The
/// backend works on a duplicate: your messages and ours never meet, and `comm` stays yours.
///
/// Threads: MPI must have been initialised at MPI_THREAD_SERIALIZED or MULTIPLE: MPI_Init alone
/// gives less, and is refused. At SERIALIZED your own MPI calls and the calls of groups must not
/// run at the same time; groups among themselves see to that.
/// Ranks: every rank of `comm` calls it, once per group.
/// Failure: UsageError (no communicator, an inter-communicator, thread level, this build has no
/// module for your MPI), Timeout. An error of MPI in a group is an exception here, never the end of
/// the process.
/// check: as in InitOptions (comm/start/run.h). The last calls are recorded and dumped as there.
/// Lifetime: let the groups go before you call MPI_Finalize. One that is older than that is dead
/// but harmless.
///
/// Comm is MPI_Comm: a pointer in Open MPI, an int in MPICH and those that share its ABI.
template <class Comm>
Group mpi_group(Comm comm, Duration timeout = std::chrono::minutes(10),
                const std::string& check = "hash") {
  static_assert(std::is_same_v<Comm, int> || std::is_pointer_v<Comm>, "this is no MPI_Comm");
  return detail::mpi_group(&comm, sizeof comm, std::is_pointer_v<Comm>, timeout, check);
}

}  // namespace trireme
