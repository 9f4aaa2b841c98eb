// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/actor/host.h"

#include <fmt/format.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/errors.h"

namespace trireme::rpc {

Worker ActorPlace::worker() const {
  auto agent = at.lock();
  check<Aborted>(agent != nullptr, "the worker of actor '{}' {} of {} is gone", group, rank, size);
  return detail::Access::worker(std::move(agent));
}

namespace detail {

void ActorHost::spawn(const std::shared_ptr<Answering>& call, MakeFrom make_from) {
  try {
    auto reader = call->arguments();
    SpawnHead head;
    reader.get(head);
    check<Corrupt>(head.size > 0 && head.rank >= 0 && head.rank < head.size && head.restarts >= 0 &&
                       head.on_error >= OnError::keep && head.on_error <= OnError::escalate &&
                       head.group.size() <= wire::kMaxName,
                   "the description of an actor '{}' is damaged", type_);
    const std::string& worker = call->chain().back().worker;
    Mailbox::Actor actor{.name = fmt::format("actor '{}' {} of {} on worker '{}'", head.group,
                                             head.rank, head.size, worker),
                         .worker = worker,
                         .number = head.actor};
    actor.policy.on_error = head.on_error;
    actor.policy.most_restarts = head.most_restarts;
    actor.policy.within = std::chrono::nanoseconds(head.within_ns);
    // The reader's bytes are the call's, which the mailbox has as long as it makes objects.
    actor.make = [make = make_from(std::move(reader)), head,
                  at = std::weak_ptr(call->agent())](int restarts) {
      return make(ActorPlace{head.group, head.rank, head.size, head.restarts + restarts, at});
    };
    actor.ended = [weak = weak_from_this(), number = head.actor] {
      const auto host = weak.lock();
      if (!host) return;
      std::shared_ptr<Mailbox> ended;  // destroyed outside of the lock
      std::lock_guard lock(host->mutex_);
      const auto found = host->actors_.find(number);
      if (found == host->actors_.end()) return;
      ended = std::move(found->second);
      host->actors_.erase(found);
    };
    const auto mailbox = std::make_shared<Mailbox>(std::move(actor), call);
    {
      std::lock_guard lock(mutex_);
      check<UsageError>(actors_.emplace(head.actor, mailbox).second,
                        "an actor '{}' of this number is on worker '{}' already", type_, worker);
    }
    mailbox->start();
  } catch (...) {
    call->never_began(std::current_exception());
  }
}

std::shared_ptr<Mailbox> ActorHost::find(uint64_t actor) {
  std::lock_guard lock(mutex_);
  const auto found = actors_.find(actor);
  return found == actors_.end() ? nullptr : found->second;
}

void ActorHost::waited_for(const std::shared_ptr<Answering>& call) {
  try {
    auto reader = call->arguments();
    MessageHead head;
    reader.get(head);
    if (const auto mailbox = find(head.actor)) mailbox->waited_for(head.ticket);
    call->reply(call->result());
  } catch (...) {
    call->never_began(std::current_exception());
  }
}

void ActorHost::put(const std::shared_ptr<Answering>& call, Mailbox::Run run) {
  try {
    auto reader = call->arguments();
    MessageHead head;
    reader.get(head);
    const auto mailbox = find(head.actor);
    if (!mailbox)
      throw CallLost(fmt::format("no actor '{}' of this number is on worker '{}': it has ended",
                                 type_, call->chain().back().worker),
                     Began::no);
    mailbox->put(std::make_shared<Message>(call, std::move(reader), head, mailbox), run);
  } catch (...) {
    call->never_began(std::current_exception());
  }
}

}  // namespace detail
}  // namespace trireme::rpc
