// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/server/membership.h"
#include "trireme/rpc/server/methods.h"

// Joining the servers, the first time and after one was lost.
namespace trireme::rpc::server {

Join Membership::join_of(size_t server) const {
  const Server& s = servers_[server];
  Join join{options_.rank, static_cast<int32_t>(server), servers(), s.keys, {}, {}};
  for (const TableOptions& t : options_.tables)
    join.tables.push_back(
        {t.name, t.rows, t.width, static_cast<int32_t>(t.dtype), t.init_std, t.seed});
  if (options_.rank == 0)
    for (const size_t p : s.parameters)
      join.values.push_back(parameters_[p].tensor.detach().cpu().contiguous());
  return join;
}

void Membership::join(bool with_weights) {
  const auto deadline = Deadline::after(options_.deadline);
  for (;;) {
    try {
      meet(deadline);
      if (with_weights) get_weights(step_, true);
      return;
    } catch (const PeerLost& error) {
      if (deadline.expired()) throw;
    } catch (const Over&) {
      check<Timeout>(
          !deadline.expired(),
          "worker {} could not join in time: servers of parameters begin again and again",
          options_.rank);
    }
    // The job's store may not know yet that a server is gone.
    std::mutex nobody;
    std::unique_lock lock(nobody);
    std::condition_variable().wait_for(lock, std::chrono::milliseconds(20));
  }
}

void Membership::meet(Deadline deadline) {
  std::vector<Future<Joined>> joining;
  for (Server& s : servers_) {
    s.current = false;
    s.pushes.clear();
    s.peer = me_.peer(s.name, {.deadline = deadline.remaining()}).with(options_.deadline);
  }
  for (size_t i = 0; i < servers_.size(); ++i)
    joining.push_back(servers_[i].peer->async<JoinCall>(join_of(i)));
  std::vector<plan::Standing> standings;
  int64_t clock = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < joining.size(); ++i) {
    const Joined joined = joining[i].get();
    check<UsageError>(i == 0 || joined.synchronous == synchronous_,
                      "server '{}' is synchronous and another one is not", servers_[i].name);
    synchronous_ = joined.synchronous;
    standings.push_back(joined.standing);
    clock = std::min(clock, joined.clock);
  }
  if (synchronous_) {
    // The first server keeps what was decided, so that all workers hear the same.
    const auto decision = servers_.front().peer->sync<DecideCall>(
        Ask{options_.rank, epoch_, options_.servers, standings});
    std::vector<Future<Answer>> begun;
    for (Server& s : servers_)
      begun.push_back(s.peer->async<BeginCall>(Begin{options_.rank, decision}));
    bool over = false;
    for (auto& answer : begun) over = answer.get() == Answer::over || over;
    epoch_ = decision.epoch;
    if (over) throw Over();
    step_ = decision.step;
  } else if (step_ < 0) {
    step_ = clock;
  }
  for (Server& s : servers_)
    s.attendance = s.peer->with(Duration::max())
                       .async<AttendCall>(Attend{options_.rank, synchronous_ ? -1 : step_});
}

// A server is gone, or servers have gone back. `made`: within a step, whose gradients do not count
// at a server that has lost them. Else within a forward, which has the parameters in use.
void Membership::come_back(bool made) {
  wait_quietly();
  const int64_t before = step_;
  if (made && !synchronous_) ++step_;
  if (made) forget_gradients();
  join(made);
  dropped_ = !made && synchronous_;
  log_warn(
      "parameter client: worker {} has met its servers again; it was at step {}, and goes on "
      "at step {}",
      options_.rank, before, step_);
}

}  // namespace trireme::rpc::server
