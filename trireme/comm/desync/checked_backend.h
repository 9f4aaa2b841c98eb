// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/backend.h"
#include "trireme/comm/desync/wait_board.h"

namespace trireme::detail {

/// Finds out that ranks call different collectives, for a backend that does not by itself.
///   each: before every collective one small exchange; the first that differs is a Mismatch on all
///         ranks, naming two ranks and both calls, and no data has moved. Posting waits for it.
///   hash: the same exchange after every 64 collectives, over all of them; names the first that
///         differed. Until then a wrong call does what the backend makes of it. Ranks that such
///         calls make wait tell each other after a second, where the backend tells of that.
///   off:  nothing.
/// UsageError for another word. Sends and receives are between two ranks and not compared. Groups
/// that are made of it are checked too.
/// board, where there is one: with hash, through it ranks that wait say in what (StallWatch):
/// circles, ranks that left and calls that differ are a Mismatch in seconds, a rank that is late a
/// line in the log. With each, a Mismatch ends all groups of this rank; calls of groups, sends and
/// receives that wait for each other in a circle, and calls that wait for a rank that has left, are
/// a Mismatch after about a second; a Timeout names who did not come.
TRIREME_API std::shared_ptr<Backend> checked_backend(std::shared_ptr<Backend> inner,
                                                     const std::string& check,
                                                     const std::string& group,
                                                     std::unique_ptr<WaitBoard> board = {});

}  // namespace trireme::detail
