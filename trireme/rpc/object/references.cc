// SPDX-License-Identifier: Apache-2.0
// RRefs: how they travel, and how calls wait for their objects.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/agent/crew.h"
#include "trireme/rpc/agent/deadlines.h"
#include "trireme/rpc/object/books.h"
#include "trireme/rpc/object/messages.h"
#include "trireme/rpc/object/objects.h"

namespace trireme::rpc::detail {

Reference::Reference(std::shared_ptr<Objects> at, const ObjectId& object, std::string owner,
                     std::string kind, std::string where, std::shared_ptr<Hold> hold)
    : at_(std::move(at)),
      object_(object),
      owner_(std::move(owner)),
      kind_(std::move(kind)),
      where_(std::move(where)),
      hold_(std::move(hold)) {}

Reference::~Reference() { at_->drop(object_, hold_); }

void Objects::drop(const ObjectId& object, const std::shared_ptr<Hold>& hold) {
  std::unique_lock lock(mutex_);
  if (left_) return;
  if (hold) --hold->references;
  ledger_.drop(object, hold ? hold->life : 0);
  act(lock);
}

std::shared_ptr<Reference> Objects::begin(const std::shared_ptr<Line>& line,
                                          const std::string& kind, const std::string& where) {
  std::unique_lock lock(mutex_);
  check<Aborted>(!left_, "worker '{}' has shut down", worker_);
  const auto made = ledger_.make(line->member(), line->link());
  auto hold = std::make_shared<Hold>(Hold{.object = made.object,
                                          .life = made.life,
                                          .owner = line->peer(),
                                          .kind = kind,
                                          .where = where,
                                          .line = line,
                                          .references = 1});
  holds_[made.life] = hold;
  act(lock);
  return std::make_shared<Reference>(shared_from_this(), made.object, line->peer(), kind, where,
                                     hold);
}

uint64_t Objects::life_of(const Reference& reference) { return reference.hold()->life; }

void Objects::made(const std::shared_ptr<Reference>& reference, std::exception_ptr error) {
  answered(reference->hold(), error);
}

std::shared_ptr<Reference> Objects::own(std::shared_ptr<void> value, const std::string& kind,
                                        std::function<void(encoding::Writer&)> put,
                                        const std::string& where) {
  std::lock_guard lock(mutex_);
  check<Aborted>(!left_, "worker '{}' has shut down", worker_);
  const ObjectId object = ledger_.own();
  stored_[object] = std::make_shared<Kept>(Kept{.object = object,
                                                .kind = kind,
                                                .where = where,
                                                .value = std::move(value),
                                                .put = std::move(put),
                                                .progress = Progress::there});
  return std::make_shared<Reference>(shared_from_this(), object, worker_, kind, where, nullptr);
}

/// The references among the arguments of one call.
class PassedOn final : public Passage {
 public:
  PassedOn(std::shared_ptr<Objects> at, uint64_t link) : at_(std::move(at)), link_(link) {}
  ~PassedOn() override { at_->passage_ended(link_, tokens, static_cast<int>(fate)); }
  std::vector<uint64_t> tokens;

 private:
  const std::shared_ptr<Objects> at_;
  const uint64_t link_;
};

void Objects::passage_ended(uint64_t link, const std::vector<uint64_t>& tokens, int fate) {
  std::unique_lock lock(mutex_);
  if (left_) return;
  switch (static_cast<Passage::Fate>(fate)) {
    case Passage::Fate::unread:
      ledger_.take_back(tokens);
      break;
    case Passage::Fate::under_way:
      ledger_.call_failed(link, tokens, true);
      break;
    case Passage::Fate::failed:
      ledger_.call_failed(link, tokens, false);
      break;
    case Passage::Fate::answered:
      break;  // it has read them, and settles them
  }
  act(lock);
}

void Objects::put(encoding::Writer& writer, const std::shared_ptr<const Reference>& reference) {
  auto* const transit = dynamic_cast<CallTransit*>(writer.transit());
  check<UsageError>(
      transit != nullptr,
      "an RRef travels in remote calls alone: it cannot be encoded for anything else");
  if (!reference) {
    writer.put(ObjectId());
    return;
  }
  const auto& line = transit->line();
  const auto at = line->objects();
  check<UsageError>(at == reference->at(),
                    "an RRef of worker '{}' cannot be passed by worker '{}' of the same process: "
                    "pass it to that one in a call",
                    reference->at()->worker(), at ? at->worker() : "?");
  uint64_t token = 0;
  {
    std::lock_guard lock(at->mutex_);
    check<Aborted>(!at->left_, "worker '{}' has shut down", at->worker_);
    token = at->ledger_.pass(reference->object(), reference->hold() ? reference->hold()->life : 0,
                             line->link(), transit->answers());
  }
  if (!transit->answers()) {
    if (!transit->passage) transit->passage = std::make_shared<PassedOn>(at, line->link());
    static_cast<PassedOn&>(*transit->passage).tokens.push_back(token);
  }
  put_reference(writer, {reference->object(), token, reference->owner(), reference->where()});
}

std::shared_ptr<Reference> Objects::get(encoding::Reader& reader, const std::string& kind) {
  auto* const transit = dynamic_cast<CallTransit*>(reader.transit());
  check<UsageError>(transit != nullptr,
                    "an RRef travels in remote calls alone: it cannot be decoded here");
  auto passed = get_reference(reader);
  if (!passed) return nullptr;
  auto& [object, token, owner, where] = *passed;
  const auto at = transit->line()->objects();
  std::unique_lock lock(at->mutex_);
  check<Aborted>(!at->left_, "worker '{}' has shut down", at->worker_);
  const auto life = at->ledger_.read(object, transit->line()->link(), token);
  std::shared_ptr<Hold> hold;
  if (life && *life == 0) {
    owner = at->worker_;
    if (!at->stored_.contains(object))
      at->stored_[object] = std::make_shared<Kept>(Kept{.object = object, .where = where});
  } else if (life) {
    auto& place = at->holds_[*life];
    if (!place)
      place = std::make_shared<Hold>(
          Hold{.object = object, .life = *life, .owner = owner, .kind = kind, .where = where});
    ++place->references;
    hold = place;
  }
  const auto self = at->shared_from_this();
  at->act(lock);
  check<UsageError>(life.has_value(),
                    "the {} that worker '{}' passed on is freed, or its call was given up", kind,
                    transit->line()->peer());
  return std::make_shared<Reference>(self, object, std::move(owner), kind, std::move(where),
                                     std::move(hold));
}

void Objects::fail_late(const std::shared_ptr<FutureCore>& future, Deadline deadline,
                        const std::string& what) {
  if (deadline.is_never()) return;
  deadlines_->add(deadline.when(), [weak = std::weak_ptr(future), what = std::string(what)] {
    // In a statement of its own: who waits for the future is then the error's only owner.
    std::exception_ptr error = std::make_exception_ptr(Timeout(what));
    if (const auto late = weak.lock()) late->fail(std::move(error));
  });
  crew_->rouse(deadline.when());
}

void Objects::when_usable(const std::shared_ptr<const Reference>& reference, Deadline deadline,
                          const std::shared_ptr<FutureCore>& future,
                          std::function<void(const std::shared_ptr<Line>&)> send) {
  const auto& hold = reference->hold();
  if (!hold) {  // its own
    try {
      Reach reach;
      {
        std::lock_guard lock(mutex_);
        reach = reach_;
      }
      check<Aborted>(reach != nullptr, "worker '{}' has shut down", worker_);
      send(reach(member_, worker_));
    } catch (...) {
      future->fail(std::current_exception());
    }
    return;
  }
  const auto go = [future, send = std::move(send), hold, self = shared_from_this()] {
    if (future->done()) return;
    std::shared_ptr<Line> line;
    std::exception_ptr error;
    {
      std::lock_guard lock(self->mutex_);
      line = hold->line;
      if (hold->progress == Progress::failed) error = again(hold->error, hold->kind);
    }
    if (error) {
      future->fail(std::move(error));
      return;
    }
    try {
      send(line);
    } catch (...) {
      future->fail(std::current_exception());
    }
  };
  {
    std::lock_guard lock(mutex_);
    if (hold->progress == Progress::coming || !hold->waiting.empty()) {
      hold->waiting.push_back([go, call = current_call(), context = current_context()] {
        CallScope scope(call);
        ContextScope within(context);
        go();
      });
      fail_late(future, deadline,
                fmt::format("the {} on worker '{}' was not there by the deadline of its call",
                            hold->kind, hold->owner));
      return;
    }
  }
  go();
}

bool Objects::confirmed(const Reference& reference) const {
  std::lock_guard lock(mutex_);
  if (reference.hold()) return reference.hold()->progress == Progress::there;
  const auto found = stored_.find(reference.object());
  return found != stored_.end() && found->second->progress == Progress::there;
}

}  // namespace trireme::rpc::detail
