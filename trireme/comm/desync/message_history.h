// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/comm/desync/wait_graph.h"
#include "trireme/comm/flight/recorder.h"
#include "trireme/comm/group.h"

namespace trireme::detail {

/// A send or recv, as reported when it makes a rank wait.
struct PostedMessage {
  Token token;
  WaitKind kind = WaitKind::none;
  flight::CallWords words{};
  CallSite site{};
  uint64_t number = 0;  // among those of its direction, peer and tag; 0: from any rank
  int peer = -1;        // of the root group

  Waiting waiting(const std::string& group) const;
};

/// The messages of one rank in one group: their number for each peer and tag, and the latest of
/// them. Other threads of the rank may read the numbers.
class MessageHistory {
 public:
  /// `peer` is in the root group, or kAnySource for a recv from any rank.
  void add(WaitKind kind, Token token, const flight::CallWords& words, CallSite site, int peer);
  /// Returns null if it is not among the latest.
  const PostedMessage* find(Token token) const;
  /// Returns the numbers, without those of collectives.
  GroupCalls counts();

 private:
  static constexpr size_t kKept = 64;

  PostedMessage latest_[kKept] = {};
  uint64_t count_ = 0;
  std::mutex mutex_;
  GroupCalls counts_;
  std::pair<int, int> last_key_{};                      // of the last message:
  std::pair<uint64_t, uint64_t>* last_pair_ = nullptr;  // its place in counts_
};

}  // namespace trireme::detail
