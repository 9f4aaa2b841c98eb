// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/desync/told_call.h"
#include "trireme/comm/group.h"
#include "trireme/comm/recent_calls.h"

namespace trireme::detail {

/// The latest collectives of one rank in one group. Written by the calling thread; other threads
/// may read their number.
class CallHistory {
 public:
  static constexpr size_t kKept = 64;

  explicit CallHistory(std::string group) : group_(std::move(group)) {}

  void add(const flight::CallWords& words, CallSite site);
  /// Sets the token of the last call, once it is posted.
  void posted(Token token) { tokens_[(count_ - 1) % kKept] = token; }
  /// Sets, for the last call, the elements sent to and expected from each rank.
  void add_parts(const std::vector<int64_t>& sends, const std::vector<int64_t>& expects);

  uint64_t count() const { return count_; }
  /// A hash of all calls so far.
  uint64_t hash() const { return hash_; }
  const ToldCall& at(uint64_t number) const { return calls_[(number - 1) % kKept]; }
  const ToldCall* all() const { return calls_; }
  /// The number of the latest call with this token; 0 if there is none.
  uint64_t number_of(Token token) const;
  struct Parts {
    uint64_t number = 0;  // the call's
    std::vector<int64_t> sends, expects;
  };
  /// Returns null if they are no longer kept.
  const Parts* parts_of(uint64_t number) const;

  RecentCalls recent() const;
  std::string text(uint64_t number) const;

 private:
  static constexpr size_t kTexts = 16;  // calls whose texts a stuck rank reports
  static constexpr size_t kParts = 8;   // calls whose parts are kept

  const std::string group_;
  std::atomic<uint64_t> count_{0};
  uint64_t hash_ = 0;
  ToldCall calls_[kKept] = {};
  Token tokens_[kKept] = {};
  Parts parts_[kParts];
  uint64_t parts_count_ = 0;
};

inline bool same_call(Token a, Token b) {
  return a.kind == b.kind && a.peer == b.peer && a.number == b.number;
}

}  // namespace trireme::detail
