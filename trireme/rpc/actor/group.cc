// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/actor/group.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/rpc/actor/host.h"
#include "trireme/rpc/agent/agent.h"
#include "trireme/rpc/agent/failures.h"
#include "trireme/rpc/errors.h"
#include "trireme/rpc/transit.h"

namespace trireme::rpc::detail {
namespace {

// Made before it is passed on: who waits for it is then its only owner.
template <class E, class... More>
void fail_one(FutureCore& future, const std::string& text, More... more) {
  std::exception_ptr error = std::make_exception_ptr(E(text, more...));
  future.fail(std::move(error));
}

uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

}  // namespace

Tickets::Tickets() : base_(random_number()) {}

void address(Outgoing& message, uint64_t actor, uint64_t ticket) {
  std::string bytes = message.arguments.take();
  auto attachments = message.arguments.take_attachments();
  std::memcpy(bytes.data(), &actor, sizeof actor);
  std::memcpy(bytes.data() + sizeof actor, &ticket, sizeof ticket);
  message.arguments = encoding::Writer(std::move(bytes));
  for (auto& attachment : attachments) message.arguments.attach(std::move(attachment));
}

void send_to(const std::shared_ptr<Line>& line, const ActorType& type, Outgoing message,
             uint64_t actor, uint64_t ticket, Deadline deadline) {
  address(message, actor, ticket);
  line->call(std::move(message), deadline);
  const auto within = std::dynamic_pointer_cast<const Message>(current_call());
  if (!within) return;
  within->sent(actor, ticket, [line, &type, actor, ticket, deadline] {
    static const std::string signature = "void()";
    auto state = std::make_shared<FutureState<void>>(line->executor());
    Outgoing says;
    says.method = type.waited_for.c_str();
    says.signature = &signature;
    says.future = state;
    says.fill = [state](encoding::Reader&) { state->set({}); };
    says.arguments.put(MessageHead{actor, ticket, false});
    line->call(std::move(says), deadline);
  });
}

Group::Group(Worker worker, const ActorType& type, SpawnOptions options, encoding::Writer arguments)
    : worker_(std::move(worker)),
      type_(type),
      options_(std::move(options)),
      deadline_(options_.deadline == Duration::min() ? Access::agent(worker_)->options().deadline
                                                     : options_.deadline),
      arguments_(arguments.take()),
      attachments_(arguments.take_attachments()) {
  check<UsageError>(!options_.workers.empty(),
                    "spawn of '{}': name at least one worker for the actors to live on",
                    type_.name);
  check<UsageError>(options_.per_worker >= 1, "spawn of '{}': per_worker is {}, and at least 1",
                    type_.name, options_.per_worker);
  check<UsageError>(options_.name.size() <= wire::kMaxName,
                    "spawn of '{}': a group's name has at most {} bytes", type_.name,
                    wire::kMaxName);
  for (const std::string& name : options_.workers) {
    const auto known = std::find(workers_.begin(), workers_.end(), name);
    const auto index = static_cast<size_t>(known - workers_.begin());
    if (known == workers_.end()) workers_.push_back(name);
    for (int i = 0; i < options_.per_worker; ++i) slots_.emplace_back().worker = index;
  }
  if (const auto within = std::dynamic_pointer_cast<const Message>(current_call()))
    parent_ = within->mailbox();
  Access::agent(worker_)->core().groups->take(options_.name, type_.name);
}

Group::~Group() = default;

std::shared_ptr<Executor> Group::executor() const { return Access::agent(worker_)->core().crew; }

bool Group::shuts_down() const { return Access::agent(worker_)->core().shuts_down; }

Group::Slot& Group::slot(int rank) {
  check<UsageError>(rank >= 0 && rank < size(), "group '{}' has actors 0 to {}, and no {}",
                    options_.name, size() - 1, rank);
  return slots_[static_cast<size_t>(rank)];
}

void Group::start() {
  std::vector<std::shared_ptr<Line>> lines;
  for (const std::string& name : workers_)
    lines.push_back(Access::line(worker_.peer(name, {.deadline = deadline_})));
  std::vector<std::shared_ptr<FutureState<void>>> ready;
  for (int rank = 0; rank < size(); ++rank) {
    const size_t worker = slots_[static_cast<size_t>(rank)].worker;
    ready.push_back(begin_life(rank, worker, lines[worker]));
  }
  for (int rank = 0; rank < size(); ++rank)
    wait_until_made(rank, std::move(ready[static_cast<size_t>(rank)]));
}

void Group::wait_until_made(int rank, std::shared_ptr<FutureState<void>> ready) {
  std::shared_ptr<FutureState<void>> life;
  uint64_t actor = 0;
  {
    std::lock_guard lock(mutex_);
    life = slot(rank).life;
    actor = slot(rank).actor;
  }
  try {
    Future<void>(std::move(ready)).get();
  } catch (...) {
    // Why it was not made is answered first.
    if (life && life->done() && life->failed()) Future<void>(std::move(life)).get();
    throw;
  }
  check<Aborted>(life != nullptr, "the group '{}' of actors was ended", options_.name);
  life->when_done([weak = weak_from_this(), rank, actor, life] {
    const auto error = life->take_error();
    if (const auto self = weak.lock()) self->life_ended(rank, actor, error);
  });
}

// The call that lasts as long as the actor, and one behind it that is answered once the actor is
// constructed.
std::shared_ptr<FutureState<void>> Group::begin_life(int rank, size_t worker,
                                                     const std::shared_ptr<Line>& line) {
  const auto made = [&] {
    auto state = std::make_shared<FutureState<void>>(line->executor());
    state->comes_by(line->road());
    return state;
  };
  auto life = made(), ready = made();
  const uint64_t actor = tickets_.next(), ticket = tickets_.next();
  ready->stems_from(ticket);
  SpawnHead head{.actor = actor, .group = options_.name, .rank = rank, .size = size()};
  {
    std::lock_guard lock(mutex_);
    Slot& mine = slot(rank);
    mine.worker = worker;
    mine.line = line;
    mine.actor = actor;
    mine.life = life;
    head.restarts = mine.history.restarts();
    if (ended_) {
      fail_one<Aborted>(*ready, "the group was ended");
      return ready;
    }
  }
  head.on_error = options_.supervision.on_error;
  head.most_restarts = options_.supervision.most_restarts;
  head.within_ns = std::chrono::nanoseconds(options_.supervision.within).count();
  const auto outgoing = [](const std::string& method, const std::string& signature,
                           const std::shared_ptr<FutureState<void>>& state) {
    Outgoing call;
    call.method = method.c_str();
    call.signature = &signature;
    call.future = state;
    call.fill = [state](encoding::Reader&) { state->set({}); };
    return call;
  };
  Outgoing lives = outgoing(type_.spawn, type_.signature, life);
  lives.standing = true;
  lives.arguments.put(head);
  lives.arguments.put_bytes(arguments_.data(), arguments_.size());
  for (const auto& attachment : attachments_) lives.arguments.attach(attachment);
  {
    CallScope of_nobody(nullptr);  // it outlives the call within which it is made
    line->call(std::move(lives), Deadline::never());
  }
  Outgoing asks = outgoing(type_.ready, type_.signature, ready);
  asks.arguments.put(MessageHead{actor, ticket, true});
  line->call(std::move(asks),
             deadline_ == Duration::max() ? Deadline::never() : Deadline::after(deadline_));
  return ready;
}

int Group::road(int rank) {
  if (rank < 0 || rank >= size()) return -1;  // send() says so
  std::lock_guard lock(mutex_);
  const Slot& mine = slot(rank);
  return mine.line ? mine.line->road() : -1;
}

std::pair<std::string, uint64_t> Group::where(int rank) {
  std::lock_guard lock(mutex_);
  const Slot& mine = slot(rank);
  return {workers_[mine.worker], mine.actor};
}

std::string Group::failure(int rank) {
  std::lock_guard lock(mutex_);
  return slot(rank).story;
}

void Group::send(int rank, Outgoing message, uint64_t ticket, Deadline deadline) {
  const auto future = message.future;
  std::exception_ptr error;
  try {
    check<UsageError>(!current_context(),
                      "'{}' of actor '{}' {} was sent within a context of distributed autograd, "
                      "and gradients do not go back through actors: send it outside of the "
                      "context, or call a function",
                      message.method, options_.name, rank);
    Lock lock(mutex_);
    Slot& mine = slot(rank);
    check<Aborted>(!ended_, "the group '{}' of actors was ended", options_.name);
    if (mine.state == State::failed)
      throw CallLost(
          fmt::format("actor '{}' {} of {} has ended: {}", options_.name, rank, size(), mine.story),
          Began::no);
    if (mine.state == State::there) {
      const auto line = mine.line;
      const uint64_t actor = mine.actor;
      lock.unlock();
      return send_to(line, type_, std::move(message), actor, ticket, deadline);
    }
    const auto& within = current_call();
    if (within && within->deadline().when() < deadline.when()) deadline = within->deadline();
    if (!deadline.is_never()) {
      const auto& core = Access::agent(worker_)->core();
      auto text = fmt::format("actor '{}' {} of {} was not back by the deadline of '{}'",
                              options_.name, rank, size(), message.method);
      // Weak: a future holds its executor, which looks at these deadlines.
      const auto place = core.deadlines->add(
          deadline.when(), [waiting = std::weak_ptr(message.future), text = std::move(text)] {
            std::exception_ptr error = std::make_exception_ptr(Timeout(text));
            if (const auto late = waiting.lock()) late->fail(std::move(error));
          });
      core.crew->rouse(place.at);
    }
    mine.pending.push_back({std::move(message), ticket, deadline, within});
  } catch (...) {
    error = std::current_exception();
  }
  if (error) future->fail(std::move(error));
}

void Group::life_ended(int rank, uint64_t actor, const std::exception_ptr& error) {
  const std::string what = error ? text_of(error) : "it ended";
  bool died = false;
  try {
    if (error) std::rethrow_exception(error);
  } catch (const CallLost&) {
    died = true;
  } catch (...) {
  }
  Lock lock(mutex_);
  Slot& mine = slot(rank);
  if (ended_ || mine.actor != actor || mine.state != State::there) return;
  if (shuts_down()) {
    mine.state = State::failed;
    mine.story = fmt::format("worker '{}', which spawned it, has shut down", worker_.name());
    return;
  }
  if (!died) return fail_for_good(lock, rank, what);
  const Supervision& policy = options_.supervision;
  const bool again = policy.on_death != OnDeath::escalate;
  const bool may = mine.history.may_restart(Clock::now() - began_,
                                            again ? policy : Supervision{.most_restarts = 0}, what);
  if (!may) return fail_for_good(lock, rank, mine.history.story());
  log_warn("actor '{}' {} of {} is to be restarted: {}", options_.name, rank, size(), what);
  mine.state = State::away;
  mine.away_since = Clock::now();
  try {
    if (!mender_.joinable()) mender_ = quiet_thread([self = shared_from_this()] { self->mend(); });
  } catch (const std::system_error& error) {
    return fail_for_good(lock, rank,
                         fmt::format("{}; no thread could be started to restart it: {}",
                                     mine.history.story(), error.what()));
  }
  changed_.notify_all();
}

// Leaves the lock.
void Group::fail_for_good(Lock& lock, int rank, const std::string& story) {
  Slot& mine = slot(rank);
  mine.state = State::failed;
  mine.story = story;
  const std::deque<Pending> lost = std::exchange(mine.pending, {});
  lock.unlock();
  const std::string text =
      fmt::format("actor '{}' {} of {} has ended: {}", options_.name, rank, size(), story);
  for (const Pending& pending : lost) fail_one<CallLost>(*pending.message.future, text, Began::no);
  const auto parent = parent_.lock();
  if (parent) parent->child_failed(std::make_exception_ptr(Error(text)));
  try {
    if (options_.on_failure)
      options_.on_failure(rank, story);
    else if (!parent)
      log_warn("{}", text);
  } catch (const std::exception& error) {
    log_warn("on_failure of group '{}' threw {}", options_.name, brief(error));
  }
}

void Group::end() {
  std::vector<std::shared_ptr<FutureState<void>>> lives;
  std::vector<std::deque<Pending>> lost;
  std::shared_ptr<FutureState<void>> mending;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    for (Slot& slot : slots_) {
      if (slot.life) lives.push_back(std::move(slot.life));
      lost.push_back(std::exchange(slot.pending, {}));
    }
    mending = mending_;
    changed_.notify_all();
  }
  Access::agent(worker_)->core().groups->release(options_.name);
  for (const auto& life : lives) life->cancel();
  for (const auto& queue : lost)
    for (const Pending& pending : queue)
      fail_one<Aborted>(*pending.message.future,
                        fmt::format("the group '{}' of actors was ended", options_.name));
  if (mending) mending->cancel();
  if (!mender_.joinable()) return;
  if (mender_.get_id() == std::this_thread::get_id())
    mender_.detach();
  else
    mender_.join();
}

}  // namespace trireme::rpc::detail
