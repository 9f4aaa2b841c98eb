// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "trireme/rpc/actor/message.h"
#include "trireme/rpc/actor/supervision.h"

namespace trireme::rpc::detail {

/// An actor where it lives: its object, the messages that wait for it, and whose turn it is.
///
/// A turn is the construction of the object, or one message from its handler's call to its answer,
/// which may come later where the handler returned a Future. There is one at a time; between them
/// the actor holds no thread.
class TRIREME_API Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  using Run = void (*)(void* object, const std::shared_ptr<Message>& message);
  struct Actor {
    std::string name;  // for texts: "actor 'Sim' 0 of 4 on worker 'sim0'"
    std::string worker;
    uint64_t number = 0;
    Supervision policy = {};
    std::function<std::shared_ptr<void>(int restarts)> make = {};
    /// Nothing more is to come. Called once, on any thread.
    std::function<void()> ended = {};
  };

  /// `life` is the call that lasts as long as the actor: its caller is who spawned it.
  Mailbox(Actor actor, std::shared_ptr<Answering> life);
  ~Mailbox();

  /// Constructs the object, soon. Once.
  void start();
  /// In the order of its sender's calls; waits for nobody.
  void put(const std::shared_ptr<Message>& message, Run run);
  /// The turn of another actor that sent the message with this ticket waits for it.
  void waited_for(uint64_t ticket);
  /// Who spawned it wants it no more, or is gone.
  void end(const std::string& why);
  /// Something that it spawned itself has failed for good: so has the actor, by its own policy.
  void child_failed(std::exception_ptr error);

  /// For the message whose turn it is. handler_failed() decides what becomes of the actor, and
  /// returns what is to be told to others after the message's own sender.
  std::function<void()> handler_failed(const Message& message, const std::exception_ptr& error);
  void turn_waits(const Message& message, uint64_t ticket);
  void turn_parks(const Message& message, uint64_t ticket);
  void turn_goes_on(const Message& message);
  void turn_over();

 private:
  struct Item {
    std::shared_ptr<Message> message;
    Run run;
    bool waited_for = false;  // by an actor's turn that sent it
  };
  using Lock = std::unique_lock<std::mutex>;
  using Told = std::function<void()>;

  void construct();
  void construct_soon();
  void next(Lock lock);
  void turn(const Item& item);
  Told failed(Lock& lock, const std::string& what);
  Told finish(Lock& lock, const std::string& why, std::exception_ptr for_spawner,
              std::exception_ptr for_senders);
  bool waits_for_itself(const Item& item) const;
  void refuse_waiting(Lock lock);
  void refuse_as_waiting(Message& message) const;
  void discard(std::shared_ptr<void> object);

  const Actor actor_;
  const std::shared_ptr<Answering> life_;
  const Clock::time_point began_ = Clock::now();

  std::mutex mutex_;
  std::shared_ptr<void> object_;
  std::deque<Item> queue_;
  bool busy_ = true;       // somebody has the turn
  bool restarts_ = false;  // once the turn is over
  bool closed_ = false;
  std::string why_;  // it is closed
  std::shared_ptr<Message> turn_;
  std::optional<uint64_t> waits_;   // what its handler waits for; 0: nobody knows
  std::optional<uint64_t> parked_;  // the same of the Future that it has returned
  std::exception_ptr child_;
  FailureHistory history_;
  std::optional<std::stop_callback<std::function<void()>>> when_life_ends_;
};

}  // namespace trireme::rpc::detail
