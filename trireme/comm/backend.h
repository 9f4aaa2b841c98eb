// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/process/process_mark.h"
#include "trireme/comm/call.h"
#include "trireme/comm/desync/wait_board.h"
#include "trireme/comm/group.h"
#include "trireme/comm/progress_group.h"

namespace trireme::detail {

/// The identity of a group: its name in the job, and the world rank of each of its ranks.
struct GroupIdentity {
  std::string name = "world";
  std::vector<int> world_ranks;  // empty: the ranks themselves
  uint64_t children = 0;  // made so far; the same on every rank, since making one is collective
};

/// What the peers of a rank that gives up throw: PeerLost with its text, or the same error as that
/// rank.
enum class AbortKind : uint8_t { other, mismatch, timeout };

/// The interface of a backend. Group checks arguments, makes tensors contiguous and flattens lists
/// before it calls. Tensors are dense and contiguous, and the backend keeps them alive until their
/// call is complete.
class TRIREME_API Backend {
 public:
  Backend(int rank, int size, Duration timeout) : rank_(rank), size_(size), timeout_(timeout) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  Duration timeout() const { return timeout_; }
  GroupIdentity identity;
  /// Throws UsageError in a child process forked after the group was made.
  void check_process() const { made_in_.check("this group"); }
  bool is_of_this_process() const { return made_in_.is_here(); }

  virtual const std::string& name() const = 0;
  virtual bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const = 0;
  /// For the ops that reduce.
  virtual bool supports(ReduceOp op, at::ScalarType dtype) const = 0;
  /// wait() for calls on such a device's tensors puts the current stream behind their results and
  /// returns; elsewhere it also waits until the peers have done their part.
  virtual bool wait_orders_streams(at::DeviceType /*device*/) const { return false; }
  virtual at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) = 0;
  /// Memory of `owner` that all ranks share. Every rank must call it.
  virtual at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner);

  /// Issues the call without waiting for other ranks. Wrappers pass on the same Call or one of
  /// their own. If it throws UsageError, nothing was sent and the group is unchanged.
  virtual Token post(const Call& call) = 0;

  virtual void wait(Token token, Duration timeout) = 0;
  virtual bool completed(Token token) = 0;
  /// The rank that sent the message of a complete recv.
  virtual int source(Token token) = 0;
  virtual int64_t shared_bytes() const = 0;
  virtual void progress() = 0;
  virtual void abort(const std::string& why, AbortKind kind = AbortKind::other) = 0;
  /// Once a call has waited for a second, `look` runs a few times a second on the waiting thread;
  /// if it throws, the wait ends with that error. An empty function removes it. Returns false if
  /// this backend does not support it.
  virtual bool on_stall(std::function<void()> /*look*/) { return false; }
  /// Whether different calls of two ranks may be matched with each other, and fail with an error
  /// that does not say so.
  virtual bool mixes_up_calls() const { return false; }
  /// For a group that does not keep the job's store: makes a board on which its ranks can report
  /// what they wait for. Every rank must call it; null if there is none.
  virtual std::unique_ptr<WaitBoard> make_board() { return nullptr; }
  /// Runs `done` on this thread once the call is complete, before wait() returns.
  virtual void when_complete(Token token, std::function<void()> done) = 0;

  /// Makes a group of some of these ranks: members[i] becomes rank i, and this rank must be among
  /// them. Exactly the members call it; `name` is unique in the job.
  virtual std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                            const std::string& name) = 0;

  /// Joins a ProgressGroup: this backend makes progress for the others while it waits, and they for
  /// it if it needs that. The caller handles groups made of this one.
  virtual void join(std::shared_ptr<ProgressGroup> progress_group) {
    progress_group_ = std::move(progress_group);
  }
  /// Null if no other backend needs progress from this one.
  const std::shared_ptr<ProgressGroup>& progress_group() const { return progress_group_; }
  /// As completed(), for callers that poll: the other backends make progress meanwhile.
  bool completed_with_progress(Token token) {
    return completed(token) ||
           (progress_group_ && progress_group_->progress_others() && completed(token));
  }

 private:
  const ProcessMark made_in_;
  std::shared_ptr<ProgressGroup> progress_group_;
  const int rank_, size_;
  const Duration timeout_;
};

/// Calls subgroup() and sets the result's name, world ranks and progress_group.
TRIREME_API std::shared_ptr<Backend> make_subgroup(Backend& backend,
                                                   const std::vector<int>& members,
                                                   const std::string& name);

}  // namespace trireme::detail
