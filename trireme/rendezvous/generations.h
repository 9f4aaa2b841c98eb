// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/store/store.h"

// How workers that keep their processes when others come or go hear of it from their launcher. Keys
// of the job's store, under "attempt/<attempt>/members/":
//   newest      the newest Generation; only launchers write it, and each changes what it has read
//   able/<id>   this worker holds the state of a step, and goes on with others than it has now
//   ready/<id>  a worker that was started later waits to be taken in
//   over        the exit code of the run, from the first of the ranks that have ended it
// The group of generation g > 0 meets under "attempt/<attempt>/generation/<g>/".
namespace trireme {

/// A worker's number among all that launchers have ever started in this attempt; set where they
/// would go on without some of them.
inline constexpr const char* kMemberVariable = "TRIREME_MEMBER";

/// The workers that train together from one change to the next. Number 0 is that of the first ones.
struct Generation {
  int64_t number = 0;
  std::vector<int64_t> members;  // in the order of their ranks
  int64_t broken = -1;           // the last generation that has lost a member
  std::string launchers = {};    // what these tell each other
  TRIREME_FIELDS(number, members, broken, launchers)
};

namespace generations {
TRIREME_API std::string newest(int attempt);
TRIREME_API std::string able(int attempt, int64_t id);
TRIREME_API std::string ready(int attempt, int64_t id);
TRIREME_API std::string over(int attempt);
}  // namespace generations

namespace detail {
/// What a process has heard.
struct ToldGenerations {
  std::atomic<int64_t> newest{0}, broken{-1};
  std::atomic<int64_t> formed{0};  // this process is in the group of that generation
};
}  // namespace detail

/// This process is a worker that was started in the place of one that had ended.
TRIREME_API bool comes_later(const net::Getenv& env = net::process_env);

/// A worker's view of who is there. A thread looks ten times a second for a newer generation; the
/// other calls are one thread's.
class TRIREME_API GenerationMember {
 public:
  /// Null: no launcher of ours that would go on without some workers started this process.
  /// UsageError for a bad number; PeerLost, Timeout: the store cannot be reached.
  static std::unique_ptr<GenerationMember> of_process(Duration timeout,
                                                      const net::Getenv& env = net::process_env);
  /// `store`: the job's. `first_ones`: how many workers the attempt began with.
  GenerationMember(std::shared_ptr<Store> store, int attempt, int64_t id, int first_ones);
  ~GenerationMember();
  GenerationMember(const GenerationMember&) = delete;

  int64_t id() const { return id_; }
  /// It was started in the place of one that had ended.
  bool came_later() const { return id_ >= first_ones_; }
  int first_ones() const { return first_ones_; }
  /// The one that next() returned last; at first number 0.
  const Generation& generation() const { return now_; }
  /// This worker's rank in it; -1: it is not in it.
  int rank() const;

  void say_able();
  void say_ready();
  /// The run is over, and so it is for all others, whether they have been told or wait for a turn.
  /// Every rank of the last group says it, because any of them may die before it has.
  void say_over(int exit_code);

  /// A newer generation is there: the one that this worker is in is over.
  bool is_over() const { return told_->newest.load(std::memory_order_relaxed) > now_.number; }

  struct Next {
    bool came = false;             // a newer generation, which holds this worker
    std::optional<int> exit_code;  // else the run is over
  };
  /// Waits for either; the end of the run counts before a generation. Neither: the time is over,
  /// or `give_up` said so.
  Next next(Deadline deadline, const std::function<bool()>& give_up = {});

  /// Where the group of generation() meets. Whoever waits in it is woken if the generation loses a
  /// member, and before has_formed() if there is a newer one, in which the others may be already:
  /// PeerLost.
  std::shared_ptr<Store> meeting();
  void has_formed() { told_->formed.store(now_.number, std::memory_order_relaxed); }

 private:
  void watch();
  void hear(const Generation& newest);

  const std::shared_ptr<Store> store_;
  const int attempt_;
  const int64_t id_;
  const int first_ones_;
  Generation now_;
  const std::shared_ptr<detail::ToldGenerations> told_;
  std::unique_ptr<Store> watched_;  // the thread's
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::thread watcher_;
};

}  // namespace trireme
