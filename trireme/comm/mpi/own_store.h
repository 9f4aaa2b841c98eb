// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/mpi/communicator.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// A store that the ranks of a communicator have to themselves. The job's own is not theirs to
/// keep: a world of MPI has none, or left its place in it to those who meet there later.
struct MpiOwnStore {
  /// Of rank 0: goes after the store, and at once. What it serves the others keep until the last of
  /// them has left.
  std::shared_ptr<StoreServer> server;
  std::unique_ptr<Store> store;
};

/// Collective. Rank 0 serves: on one host at an abstract Unix socket, to processes of this user;
/// else at a port that the kernel chooses of the address that MASTER_ADDR names, or of all of this
/// host's, to whoever proves a secret that rank 0 draws, mixed with the job's where there is one.
/// Where it is met goes through MPI. Empty on all ranks where one of them does not get there in ten
/// seconds; that one says so in the log. Timeout where MPI does not bring them together.
MpiOwnStore open_own_store(const MpiCommunicator& comm, Duration timeout);

}  // namespace trireme::detail
