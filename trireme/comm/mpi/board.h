// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/desync/wait_board.h"
#include "trireme/comm/mpi/communicator.h"

namespace trireme::detail {

/// A board for groups whose ranks have no store of their own (own_store.h): a rank sends its
/// records to all others as messages. It sends one per call that waits for a second, and reads when
/// it waits and in sweep(); unread messages are few and small.
std::unique_ptr<WaitBoard> mpi_board(std::unique_ptr<MpiCommunicator> comm);

}  // namespace trireme::detail
