// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/rpc/call.h"
#include "trireme/rpc/future.h"
#include "trireme/rpc/server/holdings.h"
#include "trireme/rpc/server/parameter_server.h"
#include "trireme/rpc/server/plan/clocks.h"
#include "trireme/rpc/server/protocol.h"
#include "trireme/rpc/server/tail.h"

namespace trireme::rpc::server {

/// A server of parameters behind its calls. Handlers file what comes under one lock; whoever files
/// the last gradients of a step makes it (settle()), one thread at a time. Nobody waits in a
/// handler for a worker: what may not begin yet is a Waiter.
class Node : public std::enable_shared_from_this<Node> {
 public:
  /// No training comes to a later one.
  static constexpr int64_t kMostSteps = int64_t{1} << 60;

  explicit Node(ServerOptions options);
  ~Node();

  Joined join(Call& call, const Join& join);
  Future<void> attend(Call& call, const Attend& attend);
  void leave(Call& call, int32_t rank);
  plan::Decision decide(Call& call, const Ask& ask);
  Answer begin(Call& call, const Begin& begin);
  Answer push(Call& call, const Push& push);
  Future<Weights> pull(Call& call, const Wanted& wanted);
  Future<Rows> look_up(Call& call, const Lookup& lookup);
  /// For whom a worker waits that may not begin this step: names.
  std::vector<std::string> waited_for(Call& call, int64_t step);

  int64_t steps() const;
  bool wait(Deadline deadline);

 private:
  /// The call by which a worker is here.
  struct Attendance {
    Promise<void> answer;
    std::optional<std::stop_callback<std::function<void()>>> ends;
  };
  struct Member {
    std::string name;  // "": it has not come
    std::shared_ptr<Attendance> attendance;
    Gradients gradients;  // of its step, as far as they have come
    int64_t attempt = 0;
  };
  struct Waiter {
    int rank = 0;
    int64_t step = 0;
    std::stop_token stop;
    std::function<void(Answer)> go;
  };
  /// Keeps settle() out while it lives.
  class Alone;

  void check_rank(int32_t rank) const;
  /// UsageError: no step that training comes to.
  static void check_step(int64_t step);
  void check_caller(const Call& call, int32_t rank) const;
  void check_alike(const std::string& worker, const Join& join) const;
  void check_sound() const;
  void check_push(const Push& push) const;
  std::string called(int rank) const;
  bool may_begin(int rank, int64_t step) const;
  void lost(int rank, const Attendance* attendance);
  void file(const Push& push);
  void wait_for_turn(const Call& call, const Wanted& wanted, std::function<void(Answer)> go);

  void settle();
  std::vector<Contribution> next_step();
  void make(std::vector<Contribution> contributions);
  void release(std::unique_lock<std::mutex>& lock);

  plan::Standing standing() const;
  void begin_alone();
  void save();
  void load(int64_t step);
  void visit(StateVisitor& visitor);
  std::vector<int64_t> saved_steps() const;

  const ServerOptions options_;
  std::mutex joining_;  // before mutex_: one worker joins at a time
  mutable std::mutex mutex_;
  mutable std::condition_variable settled_;
  plan::Clocks clocks_;
  std::vector<Member> members_;
  std::unique_ptr<Holdings> holdings_;  // made by the first worker that joins, and never replaced
  std::shared_mutex weights_;           // of what holdings_ holds
  std::string first_;                   // that worker
  std::optional<Join> shape_;           // what it brought, without values
  bool has_values_ = false, begun_ = false;
  uint64_t epoch_ = 0;
  std::optional<plan::Decision> decision_;  // the newest that was made here
  std::deque<Contribution> given_;          // with staleness: not taken yet
  std::vector<Waiter> waiters_;
  bool settling_ = false, again_ = false;
  Clock::time_point last_gone_ = Clock::now();  // when a worker left, or was lost
  int64_t saved_ = -1;                          // the step of the newest checkpoint
  std::string broken_;  // a step could not be made, and the server goes no further
  Tail tail_;           // the last member: its thread ends before the others go
};

}  // namespace trireme::rpc::server
