// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "trireme/rpc/method.h"

namespace trireme::rpc::detail {

class Mailbox;

/// What stands before the arguments of a message to an actor.
struct MessageHead {
  uint64_t actor = 0;
  uint64_t ticket = 0;  // that its sender drew
  bool answer = true;   // false: it is a broadcast, and nobody waits for its answer
  TRIREME_FIELDS(actor, ticket, answer)
};

/// A message to an actor: the call that brought it, as its handler sees it. It is over when the
/// handler has returned and its answer is there.
class TRIREME_API Message final : public Answering, public std::enable_shared_from_this<Message> {
 public:
  Message(std::shared_ptr<Answering> call, encoding::Reader arguments, const MessageHead& head,
          std::shared_ptr<Mailbox> mailbox);
  ~Message() override;

  const MessageHead& head() const { return head_; }
  std::shared_ptr<Line> line() const override { return call_->line(); }
  encoding::Reader arguments() override { return std::move(arguments_); }
  encoding::Writer result() override { return call_->result(); }
  void reply(encoding::Writer result) override;
  /// What the handler threw: its actor has failed.
  void fail(std::exception_ptr error) override;
  /// The arguments are none: the sender's fault, not the actor's.
  void bad_arguments(std::exception_ptr error);
  /// The handler has returned, or its Future waits for what has this ticket.
  void returned();
  void parks(uint64_t ticket);
  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }
  /// The handler has sent a message to an actor: `say` tells that one that this turn waits for it,
  /// once it does. Kept only where the message may come back to a turn that waits for this one.
  void sent(uint64_t actor, uint64_t ticket, std::function<void()> say) const;
  /// Its method, without the numbers of the turn.
  std::string method_name() const;
  /// Tells the handler.
  void stop() { stop_.request_stop(); }

  bool begin() override { return call_->begin(); }
  void never_began(std::exception_ptr error) override { call_->never_began(std::move(error)); }
  void on_a_thread(bool nested, std::function<void()> turn,
                   std::function<void(const std::string& why)> refused) override {
    call_->on_a_thread(nested, std::move(turn), std::move(refused));
  }
  Executor& executor() override { return call_->executor(); }
  std::shared_ptr<Agent> agent() override { return call_->agent(); }

 private:
  struct Stop {
    std::stop_source source;
    void operator()() const { std::stop_source(source).request_stop(); }
  };
  void waits(uint64_t ticket) const override;
  void goes_on() const override;
  void one_part_is_over();
  void say_so(uint64_t ticket) const;

  const std::shared_ptr<Answering> call_;
  const MessageHead head_;
  const std::shared_ptr<Mailbox> mailbox_;
  encoding::Reader arguments_;
  std::atomic<int> parts_{2};
  std::atomic<bool> answered_{false};
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<uint64_t, std::function<void()>>> sent_;  // tickets
  std::stop_callback<Stop> when_stopped_;
};

}  // namespace trireme::rpc::detail
