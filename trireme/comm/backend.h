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

/// Who a group is: its name in the job, and the world rank of each of its ranks.
struct GroupIdentity {
  std::string name = "world";
  std::vector<int> world_ranks;  // empty: the ranks themselves
  uint64_t children = 0;         // made so far: equal on every rank, since making one is collective
};

/// What peers of a rank that gives up throw: PeerLost with its text, or the same as it does.
enum class AbortKind : uint8_t { other, mismatch, timeout };

/// What a backend implements; Group checks arguments, makes tensors contiguous and flattens lists
/// before it calls. Tensors arrive dense and contiguous and are kept alive by the backend until
/// their call is complete.
class TRIREME_API Backend {
 public:
  Backend(int rank, int size, Duration timeout) : rank_(rank), size_(size), timeout_(timeout) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  Duration timeout() const { return timeout_; }
  GroupIdentity identity;
  /// UsageError in a child that was forked after the group was made.
  void check_process() const { made_in_.check("this group"); }
  bool is_of_this_process() const { return made_in_.is_here(); }

  virtual const std::string& name() const = 0;
  virtual bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const = 0;
  /// Of the ops that reduce.
  virtual bool supports(ReduceOp op, at::ScalarType dtype) const = 0;
  virtual at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) = 0;
  /// One memory for all ranks, of `owner`'s. All call it.
  virtual at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner);

  /// Issues the call and never waits for another rank. Wrappers pass the same Call on or one of
  /// their own. UsageError: nothing was sent, and the group is as it was.
  virtual Token post(const Call& call) = 0;

  virtual void wait(Token token, Duration timeout) = 0;
  virtual bool completed(Token token) = 0;
  /// Who sent what a complete recv got.
  virtual int source(Token token) = 0;
  virtual int64_t shared_bytes() const = 0;
  virtual void progress() = 0;
  virtual void abort(const std::string& why, AbortKind kind = AbortKind::other) = 0;
  /// `look` runs on the thread that waits, some times a second, once a call has made it wait for a
  /// second; what it throws ends that wait. Empty: none. False: this backend runs none.
  virtual bool on_stall(std::function<void()> /*look*/) { return false; }
  /// Calls of ranks that differ may meet, and end in an error that does not say so.
  virtual bool mixes_up_calls() const { return false; }
  /// Where the ranks of a group that does not keep the job's store can say what they wait in then.
  /// All of them call it; null: nowhere.
  virtual std::unique_ptr<WaitBoard> make_board() { return nullptr; }
  /// Runs `done` on this thread once the call is complete, before wait() returns.
  virtual void when_complete(Token token, std::function<void()> done) = 0;

  /// A group of some of these ranks: members[i] is its rank i, and this rank is among them. All
  /// members call it, and nobody else; `name` is unique in the job.
  virtual std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                            const std::string& name) = 0;

  /// Moves the progress_group's others while this backend waits, and is moved by them where it has
  /// need of that. Groups made of this one are told by whoever makes them.
  virtual void join(std::shared_ptr<ProgressGroup> progress_group) {
    progress_group_ = std::move(progress_group);
  }
  /// Null: nobody else needs to be moved.
  const std::shared_ptr<ProgressGroup>& progress_group() const { return progress_group_; }
  /// completed(), for callers that wait by polling: the others make progress meanwhile.
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

/// subgroup(), with its name, its ranks in the world and its progress_group.
TRIREME_API std::shared_ptr<Backend> make_subgroup(Backend& backend,
                                                   const std::vector<int>& members,
                                                   const std::string& name);

}  // namespace trireme::detail
