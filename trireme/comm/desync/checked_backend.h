// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/backend.h"
#include "trireme/comm/desync/wait_board.h"

namespace trireme::detail {

/// Detects that ranks call different collectives, for a backend that does not detect it itself.
///   each: a small exchange before every collective; the first that differs is a Mismatch on all
///         ranks, naming two ranks and both calls, before any data has moved. Posting waits for it.
///   hash: the same exchange after every 64 collectives, over all of them; names the first that
///         differed. Until then a wrong call has whatever effect the backend gives it. Ranks that
///         such calls keep waiting compare theirs after a second, if the backend supports
///         on_stall().
///   off:  no check.
/// Throws UsageError for any other value. Sends and receives involve two ranks and are not
/// compared. Groups made of the result are checked too. board, if given: with hash, waiting ranks
/// report through it what they wait for (StallWatch): cycles, ranks that left and calls that differ
/// become a Mismatch in seconds, and a late rank becomes a line in the log. With each, a Mismatch
/// ends all groups of this rank; cycles of calls, sends and receives across groups, and calls that
/// wait for a rank that has left, become a Mismatch after about a second; a Timeout names the
/// missing ranks.
TRIREME_API std::shared_ptr<Backend> checked_backend(std::shared_ptr<Backend> inner,
                                                     const std::string& check,
                                                     const std::string& group,
                                                     std::unique_ptr<WaitBoard> board = {});

}  // namespace trireme::detail
