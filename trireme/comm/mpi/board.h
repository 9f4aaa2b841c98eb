// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/desync/wait_board.h"
#include "trireme/comm/mpi/communicator.h"

namespace trireme::detail {

/// For groups whose ranks do not reach a store of their own (own_store.h): what a rank says goes to
/// all others as a message. A rank says something once a call that waits for a second, and it reads
/// when it does, and by sweep(): messages that nobody reads are few and small.
std::unique_ptr<WaitBoard> mpi_board(std::unique_ptr<MpiCommunicator> comm);

}  // namespace trireme::detail
