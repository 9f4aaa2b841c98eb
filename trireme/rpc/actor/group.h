// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/rpc/actor/message.h"
#include "trireme/rpc/actor/supervision.h"
#include "trireme/rpc/rpc.h"

namespace trireme::rpc {

struct SpawnOptions {
  /// Where: one actor on each, ranks in this order; a name that comes twice gets two.
  std::vector<std::string> workers = {};
  int per_worker = 1;
  /// For texts; no other group of this worker has it at the same time. Empty: the class's name.
  std::string name = {};
  /// Of each call, and of finding the workers; Duration::min(): Options::deadline.
  Duration deadline = Duration::min();
  Supervision supervision = {};
  /// Called once for each actor that has ended though nobody asked it to, with the story of its
  /// failures, on a thread of this worker's. It may use and end the group, and must not wait long.
  std::function<void(int rank, const std::string& story)> on_failure = {};
};

namespace detail {

/// What a group needs to know of its actors' class. Of static storage.
struct ActorType {
  std::string name;   // "Sim"
  std::string spawn;  // methods of its workers
  std::string ready;
  std::string waited_for;
  std::string signature;  // of the constructor
};

/// Numbers of actors and tickets of messages: no two are the same in a job.
class TRIREME_API Tickets {
 public:
  Tickets();
  uint64_t next() { return base_ + ++count_; }

 private:
  const uint64_t base_;
  std::atomic<uint64_t> count_{0};
};

/// Says to whom a message goes whose arguments begin with a MessageHead.
TRIREME_API void address(Outgoing& message, uint64_t actor, uint64_t ticket);
/// Sends such a message, and sees to it that its actor hears if the handler that sent it waits.
TRIREME_API void send_to(const std::shared_ptr<Line>& line, const ActorType& type, Outgoing message,
                         uint64_t actor, uint64_t ticket, Deadline deadline);

/// The actors that one spawn() has made, as who spawned them sees them. Threads: any.
class TRIREME_API Group : public std::enable_shared_from_this<Group> {
 public:
  Group(Worker worker, const ActorType& type, SpawnOptions options, encoding::Writer arguments);
  ~Group();

  /// Spawns all, and waits until they are constructed. Throws what the first one that was not did.
  void start();
  /// They end. Later calls fail with Aborted.
  void end();

  int size() const { return static_cast<int>(slots_.size()); }
  const std::string& name() const { return options_.name; }
  Duration deadline() const { return deadline_; }
  Tickets& tickets() { return tickets_; }
  std::shared_ptr<Executor> executor() const;
  int road(int rank);
  /// `message` has its head and arguments. While its actor is being restarted, it waits.
  void send(int rank, Outgoing message, uint64_t ticket, Deadline deadline);
  /// Where the actor is now, and its number.
  std::pair<std::string, uint64_t> where(int rank);
  std::string failure(int rank);

 private:
  enum class State { there, away, failed };
  struct Pending {
    Outgoing message;
    uint64_t ticket;
    Deadline deadline;
    std::shared_ptr<const Call> within;
  };
  struct Slot {
    size_t worker = 0;
    std::shared_ptr<Line> line;
    uint64_t actor = 0;
    State state = State::there;
    std::shared_ptr<FutureState<void>> life;
    FailureHistory history;
    std::string story;
    Clock::time_point away_since{};
    std::deque<Pending> pending;  // while it is away, in order
  };
  using Lock = std::unique_lock<std::mutex>;

  Slot& slot(int rank);
  std::shared_ptr<FutureState<void>> begin_life(int rank, size_t worker,
                                                const std::shared_ptr<Line>& line);
  /// Throws what was wrong with its constructor, or with the worker.
  void wait_until_made(int rank, std::shared_ptr<FutureState<void>> ready);
  void life_ended(int rank, uint64_t actor, const std::exception_ptr& error);
  void fail_for_good(Lock& lock, int rank, const std::string& story);
  bool shuts_down() const;
  void mend();
  void mend_one(int rank, std::vector<Candidate>& candidates);
  void drop_life(int rank);
  bool is_back(int rank);
  std::vector<Candidate> candidates();

  const Worker worker_;
  const ActorType& type_;
  SpawnOptions options_;
  Duration deadline_;
  const std::string arguments_;  // of the constructor
  const std::vector<encoding::Attachment> attachments_;
  std::vector<std::string> workers_;  // each once
  const Clock::time_point began_ = Clock::now();
  Tickets tickets_;
  std::weak_ptr<Mailbox> parent_;  // of the actor that spawned them

  std::mutex mutex_;
  std::vector<Slot> slots_;
  bool ended_ = false;
  std::condition_variable changed_;
  std::shared_ptr<FutureState<void>> mending_;  // what mend() waits for
  std::thread mender_;                          // since one was away for the first time
};

}  // namespace detail
}  // namespace trireme::rpc
