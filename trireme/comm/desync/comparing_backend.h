// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/desync/call_history.h"
#include "trireme/comm/wrappers/forwarding_backend.h"

namespace trireme::detail {

/// The common part of both checks (checked_backend.h): counts and keeps collectives, and compares
/// those of all ranks by an all_gather of the inner backend.
class ComparingBackend : public ForwardingBackend {
 public:
  /// board_ranks: this group's ranks in the numbering of the board that waiting ranks use.
  ComparingBackend(std::shared_ptr<Backend> inner, const std::string& group,
                   std::vector<int> board_ranks)
      : ForwardingBackend(std::move(inner)),
        group_(group),
        board_ranks_(std::move(board_ranks)),
        calls_(group) {}

  Token post(const Call& call) override;
  bool completed(Token token) override;
  void abort(const std::string& why, AbortKind kind) override {
    failed_ = true;
    inner_->abort(why, kind);
  }

 protected:
  /// Called when a collective has been counted and is about to be posted: compare it here.
  virtual void counted(const Call& call) = 0;
  virtual void message_posted(const Call& call, Token token) = 0;
  /// Waits for the comparing all_gather.
  virtual void wait_for_others(Token token) = 0;
  /// Called with an error that the backend threw while posting.
  virtual void look_at_failure(const Error&) {}
  /// Ends the other groups of this rank with the text of a mismatch.
  virtual void end_others(const std::string& text) = 0;

  /// Runs `post`. If it throws, the group has failed, and calls need not agree any more.
  template <class Post>
  std::invoke_result_t<const Post&> posted(const Post& post) {
    const bool had_failed = std::exchange(failed_, true);
    try {
      auto made = post();
      failed_ = had_failed;
      return made;
    } catch (const Error& e) {
      look_at_failure(e);
      throw;
    }
  }
  /// Returns the bytes of all ranks, ordered by rank.
  std::vector<char> exchange(const void* mine, size_t bytes);
  /// Throws Mismatch for the first of these calls that differs between ranks.
  void compare(const ToldCall* mine, size_t count);
  /// Throws Mismatch naming the different calls of two ranks.
  [[noreturn]] void refuse(uint64_t number, int rank, const std::string& text, int other,
                           const std::string& others_text);
  [[noreturn]] void mismatch(const std::string& text, int peer);
  int board_rank(int r) const { return board_ranks_[static_cast<size_t>(r)]; }
  std::vector<int> board_ranks_of(const std::vector<int>& members) const;
  /// Whether a destructor that calls this leaves the group in order.
  bool in_order() const { return !failed_ && std::uncaught_exceptions() == 0; }

  const std::string group_;
  const std::vector<int> board_ranks_;
  CallHistory calls_;
  bool failed_ = false;

 private:
  at::Device device_ = at::kCPU;  // of the last call
  CallSite site_;
};

}  // namespace trireme::detail
