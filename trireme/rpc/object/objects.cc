// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/object/objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/agent/crew.h"
#include "trireme/rpc/agent/deadlines.h"
#include "trireme/rpc/object/books.h"
#include "trireme/rpc/object/messages.h"
#include "trireme/rpc/rpc.h"

namespace trireme::rpc::detail {

Objects::Objects(std::string worker, int64_t member, std::shared_ptr<Crew> crew,
                 std::shared_ptr<Deadlines> deadlines, Duration deadline,
                 const std::vector<Method>* methods)
    : worker_(std::move(worker)),
      member_(member),
      crew_(std::move(crew)),
      deadlines_(std::move(deadlines)),
      deadline_(deadline),
      methods_(methods),
      ledger_(member) {}

Objects::~Objects() = default;

std::shared_ptr<Executor> Objects::executor() const { return crew_; }

void Objects::reach_by(Reach reach) {
  std::lock_guard lock(mutex_);
  reach_ = std::move(reach);
}

void Objects::opened(const std::shared_ptr<Line>& line) {
  std::lock_guard lock(mutex_);
  if (left_) return;
  lines_[line->link()] = line;
  names_[line->member()] = line->peer();
  ledger_.opened(line->link(), line->member());
}

void Objects::lost(uint64_t link, const std::string& peer, const std::string& why) {
  std::unique_lock lock(mutex_);
  lines_.erase(link);
  ledger_.lost(link);
  const auto error = [&] {
    return std::make_exception_ptr(
        PeerLost(fmt::format("worker '{}', which has the object, is gone: {}", peer, why)));
  };
  for (const auto& [life, hold] : holds_)
    if (hold->line && hold->line->link() == link && hold->progress != Progress::failed) {
      hold->progress = Progress::failed;
      hold->error = described(error(), peer);
      post([self = shared_from_this(), hold] { self->drain(hold); });
    }
  act(lock);
}

void Objects::given_up(uint64_t link, uint64_t call) {
  std::unique_lock lock(mutex_);
  ledger_.given_up(link, call);
  act(lock);
}

void Objects::post(std::function<void()> task) {
  ++acting_;
  crew_->post([self = shared_from_this(), task = std::move(task)]() mutable {
    std::exchange(task, nullptr)();
    if (--self->acting_ == 0) self->crew_->rouse(Clock::now());
  });
}

// Does what the ledger has to say, on threads that may wait. Unlocks.
void Objects::act(std::unique_lock<std::mutex>& lock) {
  auto acts = ledger_.take();
  std::vector<std::shared_ptr<void>> dropped;  // what is freed, outside of the lock
  std::vector<Ledger::Act> told;
  for (auto& act : acts) {
    if (const auto* ended = std::get_if<Ledger::Ended>(&act)) {
      const auto found = holds_.find(ended->life);
      if (found == holds_.end()) continue;
      dropped.push_back(std::move(found->second));
      holds_.erase(found);
    } else if (const auto* freed = std::get_if<Ledger::Free>(&act)) {
      const auto found = stored_.find(freed->object);
      if (found == stored_.end()) continue;
      const auto stored = std::move(found->second);
      stored_.erase(found);
      keep(stored, nullptr, {},
           std::make_exception_ptr(UsageError("the object is freed: nobody refers to it")));
      dropped.push_back(stored);
    } else if (const auto* unborn = std::get_if<Ledger::Unborn>(&act)) {
      const auto found = stored_.find(unborn->object);
      if (found == stored_.end()) continue;
      keep(found->second, nullptr, {},
           std::make_exception_ptr(PeerLost(
               "the object was never made: the worker that was about to make it is gone, or has "
               "given it up")));
    } else if (!std::holds_alternative<Ledger::Broken>(act)) {
      told.push_back(std::move(act));
    }
  }
  const bool left = left_;
  lock.unlock();
  if (left) return;
  if (!dropped.empty()) post([dropped = std::move(dropped)]() mutable { dropped.clear(); });
  for (auto& act : told)
    post([self = shared_from_this(), act = std::move(act)] { self->tell(act); });
}

// One message to another worker. Where it is gone there is nobody to be told.
void Objects::tell(const Ledger::Act& act) {
  const auto peer_at = [&](uint64_t link) -> std::optional<Peer> {
    std::lock_guard lock(mutex_);
    const auto found = lines_.find(link);
    const auto line = found == lines_.end() ? nullptr : found->second.lock();
    if (!line) return {};
    return Access::make(line, Duration::max());
  };
  if (const auto* claimed = std::get_if<Ledger::Claim>(&act)) {
    std::shared_ptr<Hold> hold;
    {
      std::lock_guard lock(mutex_);
      const auto found = holds_.find(claimed->life);
      if (found != holds_.end()) hold = found->second;
    }
    if (hold) claim(hold);
  } else if (const auto* release = std::get_if<Ledger::Release>(&act)) {
    if (auto peer = peer_at(release->link))
      (void)peer->async<ReleaseObject>(release->object, release->life);
  } else if (const auto* settle = std::get_if<Ledger::Settle>(&act)) {
    if (auto peer = peer_at(settle->link)) (void)peer->async<SettleReference>(settle->token);
  } else if (const auto* withdraw = std::get_if<Ledger::Withdraw>(&act)) {
    if (auto peer = peer_at(withdraw->link))
      peer->async<WithdrawReferences>(withdraw->tokens, withdraw->may_run)
          .consume([self = shared_from_this()](FutureState<std::vector<uint64_t>>& state) {
            if (state.failed()) return;  // the link is gone, and what went over it is settled
            const auto unread = state.take();
            std::unique_lock lock(self->mutex_);
            self->ledger_.take_back(unread);
            self->act(lock);
          });
  }
}

void Objects::claim(const std::shared_ptr<Hold>& hold) {
  try {
    Reach reach;
    {
      std::lock_guard lock(mutex_);
      reach = reach_;
    }
    check<Aborted>(reach != nullptr, "worker '{}' has shut down", worker_);
    const auto line = reach(hold->object.owner, hold->owner);
    {
      std::lock_guard lock(mutex_);
      hold->line = line;
      check<PeerLost>(ledger_.claims(hold->life, line->link()), "worker '{}' is gone", hold->owner);
    }
    Access::make(line, Duration::max())
        .async<ClaimObject>(hold->object, hold->life)
        .consume([self = shared_from_this(), hold](FutureState<void>& state) {
          self->answered(hold, state.failed() ? state.take_error() : nullptr);
        });
  } catch (...) {
    answered(hold, std::current_exception());
  }
}

// The owner has said that this worker has a hold, or will not have one.
void Objects::answered(const std::shared_ptr<Hold>& hold, const std::exception_ptr& error) {
  {
    std::unique_lock lock(mutex_);
    if (hold->progress == Progress::coming) {
      hold->progress = error ? Progress::failed : Progress::there;
      if (error) hold->error = described(error, hold->owner);
    }
    ledger_.answered(hold->life, error == nullptr);
    act(lock);
  }
  drain(hold);
}

void Objects::drain(const std::shared_ptr<Hold>& hold) {
  for (;;) {
    std::function<void()> next;
    {
      std::lock_guard lock(mutex_);
      if (hold->waiting.empty()) return;
      next = std::move(hold->waiting.front());
      hold->waiting.pop_front();
    }
    next();
  }
}

void Objects::leave() {
  std::vector<std::string> leaks;
  std::map<uint64_t, std::shared_ptr<Hold>> holds;
  std::map<ObjectId, std::shared_ptr<Kept>> stored;
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(left_, true)) return;
    for (const auto& [life, hold] : holds_)
      if (hold->references > 0 && hold->progress != Progress::failed)
        leaks.push_back(fmt::format(
            "worker '{}' shuts down with an RRef to a {} of worker '{}' that was made at {}: "
            "destroy it before shutdown()",
            worker_, hold->kind, hold->owner, hold->where));
    for (const auto& [object, kept] : stored_) {
      if (kept->progress == Progress::failed) continue;
      std::string users;
      for (const int64_t user : ledger_.users(object))
        users += (users.empty() ? "'" : ", '") + names_[user] + "'";
      const std::string what = kept->kind.empty() ? "n object" : " " + kept->kind;
      if (!users.empty())
        leaks.push_back(fmt::format(
            "worker '{}' shuts down and frees a{}, to which there is an RRef on {}; the first was "
            "made at {}",
            worker_, what, users, kept->where.empty() ? "an unknown place" : kept->where));
    }
    holds.swap(holds_);
    stored.swap(stored_);
    reach_ = nullptr;
    const auto error =
        std::make_exception_ptr(Aborted(fmt::format("worker '{}' has shut down", worker_)));
    for (const auto& [life, hold] : holds) {
      if (hold->progress == Progress::failed) continue;
      hold->progress = Progress::failed;
      hold->error = described(error, worker_);
    }
    for (const auto& [object, kept] : stored) keep(kept, nullptr, {}, error);
    ledger_.take();
  }
  for (const auto& [life, hold] : holds) {
    drain(hold);
    std::shared_ptr<Line> line;  // destroyed outside of the lock
    std::lock_guard lock(mutex_);
    line.swap(hold->line);
  }
  for (const std::string& leak : leaks) log_warn("{}", leak);
}

Objects::Counts Objects::counts() const {
  std::lock_guard lock(mutex_);
  return {ledger_.owned(), ledger_.held(), ledger_.passed(), ledger_.marks()};
}

std::string call_site(const char* file, unsigned line) {
  std::string path = file;
  const auto slash = path.rfind('/');
  if (slash != std::string::npos) path.erase(0, slash + 1);
  path.resize(std::min(path.size(), kMostWhere - 16));
  return fmt::format("{}:{}", path, line);
}

}  // namespace trireme::rpc::detail
