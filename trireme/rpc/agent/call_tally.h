// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/rpc/agent/call_board.h"
#include "trireme/rpc/agent/call_counts.h"

namespace trireme::rpc::detail {

/// What is kept of one call while it is under way, for the counts of its method and for the board.
/// Copies are of the same call; whoever ends it says so once.
class CallTally {
 public:
  void begin(CallCounts& counts, uint64_t argument_bytes) {
    counts_ = &counts;
    argument_bytes_ = argument_bytes;
    since_ns_ = now_ns();
    counts.began();
  }
  void show(CallBoard& board, CallDirection direction, std::string_view method,
            std::string_view peer) {
    place_ = board.put(direction, method, peer, since_ns_);
  }
  void ended(bool well, uint64_t result_bytes = 0) {
    if (counts_)
      counts_->ended(static_cast<uint64_t>(now_ns() - since_ns_), well, argument_bytes_,
                     result_bytes);
  }
  void hide(CallBoard& board) {
    board.take(place_);
    place_ = CallBoard::kNone;
  }

 private:
  CallCounts* counts_ = nullptr;
  uint64_t argument_bytes_ = 0;
  int64_t since_ns_ = 0;
  int place_ = CallBoard::kNone;
};

}  // namespace trireme::rpc::detail
