// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/node.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/server/node_alone.h"

// Who is there, and with what they begin.
namespace trireme::rpc::server {

Node::Node(ServerOptions options)
    : options_(std::move(options)), clocks_(options_.workers, options_.staleness) {
  check<UsageError>(options_.save_every >= 1,
                    "a parameter server that saves every {} steps: it must be at least one",
                    options_.save_every);
  members_.resize(static_cast<size_t>(options_.workers));
}

Node::~Node() = default;

std::string Node::called(int rank) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  return member.name.empty() ? fmt::format("worker {}, which has not joined", rank)
                             : fmt::format("worker {} ('{}')", rank, member.name);
}

void Node::check_rank(int32_t rank) const {
  check<UsageError>(clocks_.knows(rank),
                    "a worker of rank {} at a parameter server for {} workers: ranks are from 0",
                    rank, clocks_.workers());
}

void Node::check_step(int64_t step) {
  check<UsageError>(step >= 0 && step <= kMostSteps,
                    "a worker speaks of step {} to a parameter server: steps are counted from 0",
                    step);
}

void Node::check_caller(const Call& call, int32_t rank) const {
  check_rank(rank);
  const std::string& name = members_[static_cast<size_t>(rank)].name;
  check<UsageError>(holdings_ && name == call.caller(), "'{}' calls as worker {}, which is {}",
                    call.caller(), rank, name.empty() ? "nobody yet" : "'" + name + "'");
}

void Node::check_sound() const {
  std::lock_guard lock(mutex_);
  check<UsageError>(broken_.empty(), "{}", broken_);
}

void Node::check_alike(const std::string& worker, const Join& join) const {
  const auto differs = [&](const std::string& what) {
    fail<Mismatch>("workers '{}' and '{}' have different models: {}", first_, worker, what);
  };
  if (join.server != shape_->server || join.servers != shape_->servers)
    fail<Mismatch>("this is server {} of {} to worker '{}', and {} of {} to '{}'", shape_->server,
                   shape_->servers, first_, join.server, join.servers, worker);
  const auto compare = [&](const auto& there, const auto& here, const char* what) {
    for (size_t i = 0; i < std::max(there.size(), here.size()); ++i) {
      if (i < there.size() && i < here.size() && there[i] == here[i]) continue;
      if (i >= here.size() || (i < there.size() && there[i].name < here[i].name))
        differs(fmt::format("only the first has {} '{}' at this server", what, there[i].name));
      if (i >= there.size() || here[i].name < there[i].name)
        differs(fmt::format("only the second has {} '{}' at this server", what, here[i].name));
      differs(fmt::format("{} '{}' has another shape, dtype or setting", what, here[i].name));
    }
  };
  compare(shape_->keys, join.keys, "parameter");
  compare(shape_->tables, join.tables, "table");
}

Joined Node::join(Call& call, const Join& join) {
  std::lock_guard joining(joining_);
  {
    std::lock_guard lock(mutex_);
    check_rank(join.rank);
    const Member& member = members_[static_cast<size_t>(join.rank)];
    check<UsageError>(member.name.empty() || member.name == call.caller() ||
                          clocks_.presence(join.rank) != plan::Presence::here,
                      "'{}' joins as worker {}, which is '{}'", call.caller(), join.rank,
                      member.name);
  }
  const bool sorted = std::is_sorted(join.keys.begin(), join.keys.end(),
                                     [](const Key& a, const Key& b) { return a.name < b.name; });
  check<UsageError>(sorted, "worker '{}' has not sorted its parameters by name", call.caller());
  if (!shape_) {
    auto holdings = std::make_unique<Holdings>(join, options_);
    std::lock_guard lock(mutex_);
    holdings_ = std::move(holdings);
    first_ = call.caller();
    shape_ = join;
    shape_->values.clear();
  } else {
    check_alike(call.caller(), join);
  }
  if (join.rank == 0 && !has_values_) {
    {
      std::unique_lock weights(weights_);
      holdings_->set(join.values);
    }
    std::lock_guard lock(mutex_);
    has_values_ = true;
  }
  if (!clocks_.synchronous()) begin_alone();
  Joined joined;
  {
    std::lock_guard lock(mutex_);
    members_[static_cast<size_t>(join.rank)].name = call.caller();
    if (clocks_.synchronous() && epoch_ > 0 && has_values_) begun_ = true;
    joined = {standing(), clocks_.synchronous(), clocks_.clock(join.rank)};
  }
  settle();
  return joined;
}

Future<void> Node::attend(Call& call, const Attend& attend) {
  if (attend.clock != -1) check_step(attend.clock);
  auto attendance = std::make_shared<Attendance>();
  std::shared_ptr<Attendance> before;
  Future<void> future = attendance->answer.future();
  {
    Alone alone(*this);  // what it gave before it was lost has been taken
    std::lock_guard lock(mutex_);
    check_caller(call, attend.rank);
    check<UsageError>(
        !clocks_.synchronous() || clocks_.presence(attend.rank) != plan::Presence::lost,
        "worker {} was lost and is left out: start the job again, from its checkpoints",
        attend.rank);
    Member& member = members_[static_cast<size_t>(attend.rank)];
    before = std::exchange(member.attendance, attendance);
    clocks_.come(attend.rank, attend.clock < 0 ? clocks_.clock(attend.rank) : attend.clock);
    if (!clocks_.synchronous()) member.gradients = {};
  }
  // Outside of the lock: where the caller is gone already, it calls at once.
  attendance->ends.emplace(
      call.stop_token(), [weak = weak_from_this(), rank = attend.rank, key = attendance.get()] {
        const auto node = weak.lock();
        if (node) node->tail_.post([self = node.get(), rank, key] { self->lost(rank, key); });
      });
  settle();
  return future;
}

void Node::lost(int rank, const Attendance* attendance) {
  std::shared_ptr<Attendance> ended;
  {
    std::lock_guard lock(mutex_);
    Member& member = members_[static_cast<size_t>(rank)];
    if (member.attendance.get() != attendance) return;  // it has left, or has come again
    ended = std::move(member.attendance);
    member.attendance = nullptr;
    if (!member.gradients.complete()) member.gradients = {};
    clocks_.go(rank, plan::Presence::lost);
    last_gone_ = Clock::now();
    log_warn("parameter server: {} is lost, at its step {}, and is left out", called(rank),
             clocks_.clock(rank));
  }
  settle();
}

void Node::leave(Call& call, int32_t rank) {
  std::shared_ptr<Attendance> ended;
  {
    std::lock_guard lock(mutex_);
    check_caller(call, rank);
    ended = std::exchange(members_[static_cast<size_t>(rank)].attendance, nullptr);
    clocks_.go(rank, plan::Presence::left);
    last_gone_ = Clock::now();
  }
  if (ended) ended->answer.set();
  settle();
}

plan::Decision Node::decide(Call& call, const Ask& ask) {
  std::lock_guard lock(mutex_);
  check_caller(call, ask.rank);
  if (decision_ && decision_->epoch > ask.epoch) return *decision_;
  decision_ = plan::decide(ask.servers, ask.standings, ask.rank);
  decision_->epoch = std::max(decision_->epoch, ask.epoch + 1);
  return *decision_;
}

Answer Node::begin(Call& call, const Begin& begin) {
  const plan::Decision& decision = begin.decision;
  check_step(decision.step);
  check<UsageError>(!decision.fresh || decision.step == 0,
                    "a worker asks a server to begin afresh at step {}", decision.step);
  std::lock_guard joining(joining_);
  std::vector<Waiter> over;
  {
    Alone alone(*this);
    {
      std::lock_guard lock(mutex_);
      check_caller(call, begin.rank);
      check<UsageError>(clocks_.synchronous(), "this server takes steps as they come");
      check<UsageError>(
          std::find(decision.lost.begin(), decision.lost.end(), begin.rank) == decision.lost.end(),
          "{} was lost and is left out: start the job again, from its checkpoints",
          called(begin.rank));
      if (decision.epoch <= epoch_) return decision.epoch == epoch_ ? Answer::done : Answer::over;
      check<UsageError>(!decision.fresh || clocks_.step() == 0,
                        "a worker asks a server that has made {} steps to begin afresh",
                        clocks_.step());
    }
    // A step that cannot be loaded leaves the epoch as it was, and nobody goes on.
    if (!decision.fresh) load(decision.step);
    std::lock_guard lock(mutex_);
    epoch_ = decision.epoch;
    if (!decision.fresh) has_values_ = true;
    begun_ = has_values_;
    for (Member& member : members_) member.gradients = {};
    clocks_.go_back(decision.step, std::vector<int>(decision.lost.begin(), decision.lost.end()));
    for (int r = 0; r < clocks_.workers(); ++r)
      if (members_[static_cast<size_t>(r)].attendance) clocks_.come(r, decision.step);
    over.swap(waiters_);
  }
  for (const Waiter& waiter : over) waiter.go(Answer::over);
  settle();
  return Answer::done;
}

std::vector<std::string> Node::waited_for(Call& /*call*/, int64_t step) {
  check_step(step);
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  if (!begun_ && holdings_)
    names.push_back(has_values_ ? "servers that begin" : "worker 0, with whose values it begins");
  for (const int rank : clocks_.waited_for(step))
    names.push_back(called(rank) + fmt::format(" at step {}", clocks_.clock(rank)));
  return names;
}

}  // namespace trireme::rpc::server
