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

/// What both ways of checking have in common (checked_backend.h): the collectives are counted and
/// kept, and all ranks' are compared by an all_gather of the backend behind.
class ComparingBackend : public ForwardingBackend {
 public:
  /// board_ranks: this group's ranks as ranks of the board through which ranks that wait talk.
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
  /// A collective is counted, and about to be posted: the place to compare it.
  virtual void counted(const Call& call) = 0;
  virtual void message_posted(const Call& call, Token token) = 0;
  /// Waits for the all_gather that compares.
  virtual void wait_for_others(Token token) = 0;
  /// The backend threw it while it posted.
  virtual void look_at_failure(const Error&) {}
  /// The words of a mismatch go to the other groups of this rank.
  virtual void end_others(const std::string& text) = 0;

  /// A call that throws finishes the group, and what ranks called need not agree any more.
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
  /// Everybody's bytes, rank after rank.
  std::vector<char> exchange(const void* mine, size_t bytes);
  /// The first of these calls that differs is the end.
  void compare(const ToldCall* mine, size_t count);
  /// Two ranks called these.
  [[noreturn]] void refuse(uint64_t number, int rank, const std::string& text, int other,
                           const std::string& others_text);
  [[noreturn]] void mismatch(const std::string& text, int peer);
  int board_rank(int r) const { return board_ranks_[static_cast<size_t>(r)]; }
  std::vector<int> board_ranks_of(const std::vector<int>& members) const;
  /// Left in order, if this is called by a destructor.
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
