// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/actor/mailbox.h"

#include <fmt/format.h>

#include <utility>

#include "trireme/base/log.h"
#include "trireme/rpc/actor/turns.h"
#include "trireme/rpc/agent/failures.h"
#include "trireme/rpc/errors.h"

namespace trireme::rpc::detail {
namespace {

std::exception_ptr not_begun(const std::string& why) {
  return std::make_exception_ptr(CallLost(why, Began::no));
}

}  // namespace

Mailbox::Mailbox(Actor actor, std::shared_ptr<Answering> life)
    : actor_(std::move(actor)), life_(std::move(life)) {}

Mailbox::~Mailbox() = default;

void Mailbox::start() {
  construct_soon();
  when_life_ends_.emplace(life_->stop_token(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->end("who spawned it has ended it, or is gone");
  });
}

void Mailbox::construct_soon() {
  life_->on_a_thread(
      true, [self = shared_from_this()] { self->construct(); },
      [self = shared_from_this()](const std::string& why) {
        Lock lock(self->mutex_);
        self->busy_ = false;
        const auto error = std::make_exception_ptr(ResourceError(self->actor_.name + ": " + why));
        const auto told = self->finish(lock, why, error, error);
        lock.unlock();
        if (told) told();
      });
}

void Mailbox::construct() {
  std::shared_ptr<void> made;
  std::exception_ptr error;
  bool first = false;
  int restarts = 0;
  {
    std::lock_guard lock(mutex_);
    restarts = history_.restarts();
    first = restarts == 0;
    if (closed_) {
      busy_ = false;
      return;
    }
  }
  if (first && !life_->begin()) return end("who spawned it waits for it no more");
  const auto turn = std::make_shared<Message>(
      life_, encoding::Reader({}), MessageHead{actor_.number, 0, true}, shared_from_this());
  {
    std::lock_guard lock(mutex_);
    turn_ = turn;
  }
  try {
    CallScope scope(turn);
    made = actor_.make(restarts);
  } catch (...) {
    error = std::current_exception();
  }
  Told told;
  {
    Lock lock(mutex_);
    turn_ = nullptr;
    waits_.reset();
    if (closed_) {
      busy_ = false;
    } else if (!error) {
      object_ = std::move(made);
      busy_ = false;
      return next(std::move(lock));
    } else if (first) {
      busy_ = false;
      told = finish(lock, "its constructor failed: " + text_of(error), error, error);
    } else {
      told = failed(lock, "its constructor threw " + text_of(error));
      if (!closed_) {
        restarts_ = false;
        lock.unlock();
        construct_soon();
      } else {
        busy_ = false;
      }
    }
  }
  if (made) discard(std::move(made));
  if (told) told();
}

void Mailbox::put(const std::shared_ptr<Message>& message, Run run) {
  Lock lock(mutex_);
  if (closed_) {
    const std::string why = fmt::format("{} has ended: {}", actor_.name, why_);
    lock.unlock();
    message->never_began(not_begun(why));
  } else if (const Item item{message, run}; waits_for_itself(item)) {
    lock.unlock();
    refuse_as_waiting(*message);
  } else {
    queue_.push_back(item);
    next(std::move(lock));
  }
}

// Gives the turn to whom it belongs, if nobody has it.
void Mailbox::next(Lock lock) {
  if (busy_ || closed_) return;
  if (const auto error = std::exchange(child_, nullptr)) {
    if (actor_.policy.on_error == OnError::keep) {
      log_warn("{}: what it spawned failed: {}", actor_.name, text_of(error));
      return next(std::move(lock));
    }
    busy_ = true;
    const auto told = failed(lock, "what it spawned failed: " + text_of(error));
    lock.unlock();
    if (told) told();
    return turn_over();
  }
  if (queue_.empty()) return;
  busy_ = true;
  // What waits behind a call within a call holds it up, so it gets a thread where that would.
  bool nested = false;
  for (const Item& item : queue_) nested = nested || item.message->chain().size() > 1;
  const Item item = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  item.message->on_a_thread(
      nested, [self = shared_from_this(), item] { self->turn(item); },
      [self = shared_from_this(), item](const std::string& why) {
        item.message->never_began(std::make_exception_ptr(
            ResourceError(fmt::format("{}: {}", shown_turns(item.message->chain()), why))));
        self->life_->executor().post([self] { self->turn_over(); });  // not one in the other
      });
}

void Mailbox::turn(const Item& item) {
  void* object = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      turn_ = item.message;
      object = object_.get();
    }
  }
  if (!object) {
    item.message->never_began(not_begun(fmt::format("{} has ended", actor_.name)));
    return turn_over();
  }
  if (!item.message->begin()) return turn_over();
  CallScope scope(item.message);
  item.run(object, item.message);
  item.message->returned();
}

void Mailbox::turn_over() {
  std::shared_ptr<Message> over;
  std::shared_ptr<void> object;
  Lock lock(mutex_);
  over = std::move(turn_);
  waits_.reset();
  parked_.reset();
  if (closed_ || restarts_) object = std::move(object_);
  const bool again = !closed_ && std::exchange(restarts_, false);
  if (!again) busy_ = false;
  if (object || again) {
    lock.unlock();
    discard(std::move(object));
    if (again) construct_soon();
    return;
  }
  next(std::move(lock));
}

std::function<void()> Mailbox::handler_failed(const Message& message,
                                              const std::exception_ptr& error) {
  Lock lock(mutex_);
  if (closed_) return {};
  const std::string what = fmt::format("'{}' threw {}", message.method_name(), text_of(error));
  if (actor_.policy.on_error == OnError::keep) {
    lock.unlock();
    if (!message.head().answer)
      log_warn("{}: '{}', for whose answer nobody waits, threw {}", actor_.name,
               message.method_name(), text_of(error));
    return {};
  }
  return failed(lock, what);
}

// By its policy: it is constructed again once the turn is over, or ends. What waits is lost.
Mailbox::Told Mailbox::failed(Lock& lock, const std::string& what) {
  const bool again = actor_.policy.on_error != OnError::escalate &&
                     history_.may_restart(Clock::now() - began_, actor_.policy, what);
  if (!again) {
    if (actor_.policy.on_error == OnError::escalate)
      history_.may_restart(Clock::now() - began_, {.most_restarts = 0}, what);
    const std::string story = fmt::format("{} has failed: {}", actor_.name, history_.story());
    return finish(lock, history_.story(), std::make_exception_ptr(Error(story)), not_begun(story));
  }
  restarts_ = true;
  std::deque<Item> lost = std::exchange(queue_, {});
  const std::string text =
      fmt::format("{} failed before it took this message: {}", actor_.name, what);
  return [lost = std::move(lost), text, name = actor_.name, what] {
    log_warn("{} is constructed again: {}", name, what);
    for (const Item& item : lost) item.message->never_began(not_begun(text));
  };
}

// Under the lock. What is to be told once it is left.
Mailbox::Told Mailbox::finish(Lock&, const std::string& why, std::exception_ptr for_spawner,
                              std::exception_ptr for_senders) {
  if (closed_) return {};
  closed_ = true;
  why_ = why;
  std::deque<Item> lost = std::exchange(queue_, {});
  if (turn_) turn_->stop();
  std::shared_ptr<void> object = busy_ ? nullptr : std::move(object_);
  return [self = shared_from_this(), lost = std::move(lost), object = std::move(object),
          for_spawner = std::move(for_spawner), for_senders = std::move(for_senders)]() mutable {
    if (for_spawner) self->life_->fail(std::move(for_spawner));
    for (const Item& item : lost) item.message->never_began(for_senders);
    self->discard(std::move(object));
    if (self->actor_.ended) self->actor_.ended();
  };
}

void Mailbox::end(const std::string& why) {
  Lock lock(mutex_);
  const auto told =
      finish(lock, why, nullptr, not_begun(fmt::format("{} has ended: {}", actor_.name, why)));
  lock.unlock();
  if (told) told();
}

void Mailbox::child_failed(std::exception_ptr error) {
  Lock lock(mutex_);
  child_ = std::move(error);
  next(std::move(lock));
}

// Objects of the program's are destroyed where its handlers run, and never under a lock.
void Mailbox::discard(std::shared_ptr<void> object) {
  if (object) life_->executor().post([object = std::move(object)]() mutable { object.reset(); });
}

void Mailbox::turn_waits(const Message& message, uint64_t ticket) {
  Lock lock(mutex_);
  if (turn_.get() != &message) return;
  waits_ = ticket;
  refuse_waiting(std::move(lock));
}

void Mailbox::turn_parks(const Message& message, uint64_t ticket) {
  Lock lock(mutex_);
  if (turn_.get() != &message) return;
  parked_ = ticket;
  refuse_waiting(std::move(lock));
}

void Mailbox::turn_goes_on(const Message& message) {
  std::lock_guard lock(mutex_);
  if (turn_.get() == &message) waits_.reset();
}

// Whether the turn waits for something within which somebody waits for this message.
bool Mailbox::waits_for_itself(const Item& item) const {
  const auto& waits = waits_ ? waits_ : parked_;
  if (!turn_ || !waits || !item.message->head().answer) return false;
  const auto& chain = item.message->chain();
  const auto origin = origin_in(chain, actor_.worker, {actor_.number, turn_->head().ticket});
  if (!origin || (*waits != 0 && origin->first_ticket != 0 && *waits != origin->first_ticket))
    return false;
  // Another actor's turn says so when it waits; of any other handler it is taken for granted.
  return origin->direct || item.waited_for || !turn_of(chain[chain.size() - 2]);
}

void Mailbox::waited_for(uint64_t ticket) {
  Lock lock(mutex_);
  for (Item& item : queue_)
    if (item.message->head().ticket == ticket) item.waited_for = true;
  refuse_waiting(std::move(lock));
}

void Mailbox::refuse_waiting(Lock lock) {
  std::vector<std::shared_ptr<Message>> refused;
  std::erase_if(queue_, [&](const Item& item) {
    if (!waits_for_itself(item)) return false;
    refused.push_back(item.message);
    return true;
  });
  lock.unlock();
  for (const auto& message : refused) refuse_as_waiting(*message);
}

void Mailbox::refuse_as_waiting(Message& message) const {
  message.never_began(std::make_exception_ptr(UsageError(fmt::format(
      "{} would wait for itself: {}. Let it continue with then() and return without waiting, or "
      "send what needs no answer by broadcast",
      actor_.name, shown_turns(message.chain())))));
}

}  // namespace trireme::rpc::detail
