// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/actor/message.h"

#include "trireme/rpc/actor/mailbox.h"
#include "trireme/rpc/actor/turns.h"

namespace trireme::rpc::detail {
namespace {

std::vector<wire::Link> chain_of(const Answering& call, const MessageHead& head) {
  auto chain = call.chain();
  chain.back().method = turn_text(chain.back().method, {head.actor, head.ticket});
  return chain;
}

}  // namespace

Message::Message(std::shared_ptr<Answering> call, encoding::Reader arguments,
                 const MessageHead& head, std::shared_ptr<Mailbox> mailbox)
    : Answering(call->caller(), chain_of(*call, head), call->deadline()),
      call_(std::move(call)),
      head_(head),
      mailbox_(std::move(mailbox)),
      arguments_(std::move(arguments)),
      when_stopped_(call_->stop_token(), Stop{stop_}) {}

Message::~Message() = default;

void Message::reply(encoding::Writer result) {
  if (answered_.exchange(true)) return;
  call_->reply(head_.answer ? std::move(result) : call_->result());
  one_part_is_over();
}

void Message::fail(std::exception_ptr error) {
  if (answered_.exchange(true)) return;
  // First: who gets the error may send the next message at once.
  const auto told = mailbox_->handler_failed(*this, error);
  call_->fail(error);
  if (told) told();
  error = nullptr;
  one_part_is_over();
}

void Message::bad_arguments(std::exception_ptr error) {
  if (answered_.exchange(true)) return;
  call_->fail(std::move(error));
  one_part_is_over();
}

void Message::returned() { one_part_is_over(); }

void Message::one_part_is_over() {
  if (--parts_ == 0) mailbox_->turn_over();
}

std::string Message::method_name() const { return method_without_turn(chain().back()); }

void Message::parks(uint64_t ticket) {
  mailbox_->turn_parks(*this, ticket);
  say_so(ticket);
}

void Message::waits(uint64_t ticket) const {
  mailbox_->turn_waits(*this, ticket);
  say_so(ticket);
}

void Message::sent(uint64_t actor, uint64_t ticket, std::function<void()> say) const {
  // The last link is this message: what its own actor is sent the mailbox sees by itself.
  for (size_t i = 0; i + 1 < chain().size(); ++i) {
    const auto turn = turn_of(chain()[i]);
    if (!turn || turn->actor != actor) continue;
    std::lock_guard lock(mutex_);
    sent_.emplace_back(ticket, std::move(say));
    return;
  }
}

// Where nobody knows what it waits for, it may be for each.
void Message::say_so(uint64_t ticket) const {
  std::vector<std::function<void()>> said;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(sent_, [&](auto& one) {
      if (ticket != 0 && one.first != ticket) return false;
      said.push_back(std::move(one.second));
      return true;
    });
  }
  for (const auto& say : said) say();
}

void Message::goes_on() const { mailbox_->turn_goes_on(*this); }

}  // namespace trireme::rpc::detail
