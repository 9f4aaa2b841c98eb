// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/codec.h"
#include "trireme/base/export.h"
#include "trireme/comm/wait_board.h"

// For check=hash: ranks that a call makes wait for long compare what they called, without waiting
// for the next comparison of hashes, to which a rank that is stuck never comes.
namespace trireme::detail {

/// The last collectives of a rank in one group.
struct RecentCalls {
  uint64_t last = 0;                 // the number of the last one
  std::vector<uint64_t> digests;     // of those up to it
  std::vector<std::string> texts{};  // of the last of these
  TRIREME_FIELDS(last, digests, texts)

  /// "": not kept.
  TRIREME_API std::string text(uint64_t number) const;
};

/// The number of the first call that both have kept and that differs.
TRIREME_API std::optional<uint64_t> first_difference(const RecentCalls& a, const RecentCalls& b);

/// Where the ranks of a root group, and of groups made of it, put these. Threads: any.
class StallWatch {
 public:
  explicit StallWatch(std::unique_ptr<WaitBoard> board) : board_(std::move(board)) {}

  /// Says what this rank called; returns what the others have said of that group, by rank of the
  /// root group. Empty: the board is gone.
  std::vector<std::optional<RecentCalls>> tell(const std::string& group, const RecentCalls& mine);
  /// Now and then, by ranks that never wait: takes in what others say.
  void sweep();

 private:
  using Record = std::map<std::string, RecentCalls>;  // by group
  std::mutex mutex_;
  std::unique_ptr<WaitBoard> board_;
  Record own_;
};

}  // namespace trireme::detail
