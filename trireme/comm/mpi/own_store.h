// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/mpi/communicator.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// A store that only the ranks of a communicator use. They cannot keep the job's store: a world of
/// MPI has none, or has left its place in it to groups that meet there later.
struct MpiOwnStore {
  /// On rank 0: destroyed after the store, and at once. The others keep what it serves until the
  /// last of them has left.
  std::shared_ptr<StoreServer> server;
  std::unique_ptr<Store> store;
};

/// Collective. Rank 0 serves: on one host at an abstract Unix socket, to processes of this user;
/// otherwise at a port that the kernel chooses, on the address that MASTER_ADDR names or on all of
/// this host's, to clients that prove a secret that rank 0 draws, mixed with the job's if there is
/// one. The address is sent through MPI. Returns an empty result on all ranks if one of them does
/// not connect in ten seconds; that one logs it. Throws Timeout if MPI does not bring them
/// together.
MpiOwnStore open_own_store(const MpiCommunicator& comm, Duration timeout);

}  // namespace trireme::detail
