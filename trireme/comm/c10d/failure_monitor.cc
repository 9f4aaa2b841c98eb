// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/c10d/failure_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/base/rank_label.h"
#include "trireme/net/address.h"

namespace trireme::detail {
namespace {

constexpr Duration kAnswer = std::chrono::seconds(2);
constexpr Duration kYear = std::chrono::hours(24 * 365);

std::string lost_key(int rank) { return fmt::format("news/lost/{}", rank); }
std::string left_key(int rank) { return fmt::format("news/left/{}", rank); }
std::string failed_key(const std::string& group) { return "news/failed/" + group; }

}  // namespace

void raise(const Failure& failure, int rank) {
  const ErrorContext context{rank, failure.peer, "", -1};
  switch (failure.kind) {
    case Failure::Kind::mismatch:
      throw Mismatch(failure.text, context);
    case Failure::Kind::timeout:
      throw Timeout(failure.text, context);
    case Failure::Kind::resource:
      throw ResourceError(failure.text, context);
    case Failure::Kind::lost:
      break;
  }
  throw PeerLost(failure.text, context);
}

std::exception_ptr exception_of(const Failure& failure, int rank) {
  try {
    raise(failure, rank);
  } catch (...) {
    return std::current_exception();
  }
}

GivenUp give_up(const std::string& why, AbortKind kind, int rank, int peer, uint64_t calls) {
  if (kind == AbortKind::other)
    return {{Failure::Kind::lost, peer,
             fmt::format("rank {} failed after call {}: {}", rank, calls, why)},
            std::make_exception_ptr(Aborted("this rank gave up: " + why))};
  const Failure told{kind == AbortKind::mismatch ? Failure::Kind::mismatch : Failure::Kind::timeout,
                     peer, why};
  return {told, exception_of(told, rank)};
}

std::string to_text(const Failure& failure) {
  return fmt::format("{} {} {}", static_cast<int>(failure.kind), failure.peer, failure.text);
}

Failure failure_from(const std::string& text) {
  Failure failure;
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos) {
    failure.text = text;
    return failure;
  }
  const int kind = std::atoi(text.c_str());
  if (kind >= 0 && kind <= 3) failure.kind = static_cast<Failure::Kind>(kind);
  failure.peer = std::atoi(text.c_str() + first);
  failure.text = text.substr(second + 1);
  return failure;
}

// The thread's state. It outlives the FailureMonitor if the store does not answer, because a call
// that waits for the store cannot be woken.
struct FailureMonitor::Core {
  struct Group {
    std::vector<int> world_ranks;
    OnFailure on_failure;
    std::optional<Failure> failure;
  };
  using Task = std::function<void(Store&)>;

  Core(std::unique_ptr<Store> connection, int rank, int size)
      : rank_(rank), size_(size), store_(std::move(connection)), where_(store_->describe()) {
    // A store that does not answer is not a loss: callers have deadlines, and the link is
    // monitored.
    store_->set_answer_limit(kYear);
    where_.resize(std::min(where_.size(), where_.find(" under ")));  // whatever its prefixes are
  }

  void join(const std::string& group, std::vector<int> world_ranks, OnFailure on_failure);
  void leave(const std::string& group, bool in_order);
  bool end();
  Failure fail(const std::string& group, const Failure& failure);
  std::optional<Failure> cause(const std::string& group, int world_rank, Duration patience);
  bool has_left(const std::string& group, int world_rank);
  std::map<int, std::string> words(const std::string& group, const std::vector<int>& world_ranks);
  std::string silence();

  void run();
  void look();
  void settle(const std::string& name, const Failure& failure);
  bool ask(Task task, Duration limit);
  void post(Task task);

  const int rank_, size_;
  std::unique_ptr<Store> store_;  // of the thread
  std::string where_;
  int64_t seen_ = 0;                 // used by the thread: news so far
  std::set<int> left_;               // of the thread
  std::map<int, std::string> lost_;  // of the thread
  std::string store_lost_;           // used by the thread: why the store was lost

  std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<Task> tasks_;
  std::optional<Clock::time_point> busy_since_;  // since when the thread has waited for the store
  bool stop_ = false, has_ended_ = false;

  std::mutex groups_mutex_;  // held while on_failure runs
  std::map<std::string, Group> groups_;
};

FailureMonitor::FailureMonitor(std::unique_ptr<Store> connection, int rank, int size)
    : core_(std::make_shared<Core>(std::move(connection), rank, size)) {
  core_->store_->set_will(
      lost_key(rank),
      fmt::format("rank {} (pid {} on {}) is gone: it was killed, or its host or its "
                  "link to the others is down",
                  rank, ::getpid(), net::host_name()));
  thread_ = quiet_thread([core = core_, rank] {
    ThreadRankScope label(rank);
    core->run();
  });
}

FailureMonitor::~FailureMonitor() {
  if (core_->end())
    thread_.join();
  else
    thread_.detach();  // it owns its core, makes no more callbacks, and ends when the store answers
}

void FailureMonitor::join(const std::string& group, std::vector<int> world_ranks,
                          OnFailure on_failure) {
  core_->join(group, std::move(world_ranks), std::move(on_failure));
}
void FailureMonitor::leave(const std::string& group, bool in_order) {
  core_->leave(group, in_order);
}
Failure FailureMonitor::fail(const std::string& group, const Failure& failure) {
  return core_->fail(group, failure);
}
std::optional<Failure> FailureMonitor::cause(const std::string& group, int world_rank,
                                             Duration patience) {
  return core_->cause(group, world_rank, patience);
}
bool FailureMonitor::has_left(const std::string& group, int world_rank) {
  return core_->has_left(group, world_rank);
}
void FailureMonitor::say(const std::string& group, std::string words) {
  core_->post([core = core_.get(), group, words = std::move(words)](Store& store) {
    store.set(fmt::format("words/{}/{}", group, core->rank_), words);
  });
}
std::map<int, std::string> FailureMonitor::words(const std::string& group,
                                                 const std::vector<int>& world_ranks) {
  return core_->words(group, world_ranks);
}
std::string FailureMonitor::silence() const { return core_->silence(); }

/// Whether the thread ends; otherwise it is stuck in the store.
bool FailureMonitor::Core::end() {
  std::unique_lock lock(mutex_);
  tasks_.push_back([this](Store& store) {
    store.set(left_key(rank_), "");
    store.clear_will();
  });
  stop_ = true;
  wake_.notify_all();
  const auto until = busy_since_.value_or(Clock::now()) + kAnswer;
  if (ended_.wait_until(lock, until, [&] { return has_ended_; })) return true;
  lock.unlock();
  std::lock_guard groups_lock(groups_mutex_);
  groups_.clear();
  return false;
}

std::string FailureMonitor::Core::silence() {
  std::lock_guard lock(mutex_);
  if (!busy_since_ || Clock::now() - *busy_since_ < kAnswer) return "";
  return fmt::format(
      "The store at {} does not answer either: the process that serves it (rank 0, or the "
      "launcher) is stopped, "
      "or its host or the link to it is down",
      where_);
}

void FailureMonitor::Core::join(const std::string& group, std::vector<int> world_ranks,
                                OnFailure on_failure) {
  std::lock_guard lock(groups_mutex_);
  groups_[group] = {std::move(world_ranks), std::move(on_failure), {}};
  // Reread news that arrived before this group joined.
  post([this](Store&) { seen_ = -1; });
}

void FailureMonitor::Core::leave(const std::string& group, bool in_order) {
  {
    std::lock_guard lock(groups_mutex_);
    groups_.erase(group);
  }
  if (in_order)
    ask([this, group](Store& store) { store.set(fmt::format("left/{}/{}", group, rank_), ""); },
        kAnswer);
}

Failure FailureMonitor::Core::fail(const std::string& group, const Failure& failure) {
  auto first = std::make_shared<Failure>(failure);
  // Even if the answer is late, the others may have been notified.
  if (ask(
          [group, first](Store& store) {
            *first = failure_from(store.compare_set(failed_key(group), "", to_text(*first)));
          },
          kAnswer))
    return *first;
  return failure;
}

std::optional<Failure> FailureMonitor::Core::cause(const std::string& group, int world_rank,
                                                   Duration patience) {
  for (const Deadline deadline = Deadline::after(patience);;) {
    ask([this](Store&) { look(); }, deadline.remaining());
    {
      std::lock_guard lock(groups_mutex_);
      const auto at = groups_.find(group);
      if (at == groups_.end()) return std::nullopt;  // this rank has left it
      if (at->second.failure) return at->second.failure;
    }
    if (deadline.expired() || (world_rank >= 0 && has_left(group, world_rank))) return std::nullopt;
    std::this_thread::sleep_for(
        std::min<Duration>(deadline.remaining(), std::chrono::milliseconds(20)));
  }
}

bool FailureMonitor::Core::has_left(const std::string& group, int world_rank) {
  auto left = std::make_shared<bool>(false);
  const std::string key = fmt::format("left/{}/{}", group, world_rank);
  return ask([left, key](Store& store) { *left = store.check({key}); }, kAnswer) && *left;
}

std::map<int, std::string> FailureMonitor::Core::words(const std::string& group,
                                                       const std::vector<int>& world_ranks) {
  auto all = std::make_shared<std::map<int, std::string>>();
  const bool answered = ask(
      [group, world_ranks, all](Store& store) {
        for (int r : world_ranks)
          if (auto words = store.try_get(fmt::format("words/{}/{}", group, r))) (*all)[r] = *words;
      },
      kAnswer);
  return answered ? *all : std::map<int, std::string>();
}

void FailureMonitor::Core::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_all();
}

// Returns whether the task ran without an error within the limit. It may still run later, so it
// must own everything it needs.
bool FailureMonitor::Core::ask(Task task, Duration limit) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable there;
    int done = 0;  // 1: without an error
  };
  auto answer = std::make_shared<Answer>();
  post([answer, task = std::move(task)](Store& store) {
    int done = 2;
    try {
      task(store);
      done = 1;
    } catch (const std::exception& e) {
      log_debug("the watch of the ranks: {}", e.what());
    }
    std::lock_guard lock(answer->mutex);
    answer->done = done;
    answer->there.notify_all();
  });
  auto until = Clock::now() + limit;
  {  // The store may have been silent for long.
    std::lock_guard lock(mutex_);
    if (busy_since_) until = std::min(until, *busy_since_ + kAnswer);
  }
  std::unique_lock lock(answer->mutex);
  answer->there.wait_until(lock, until, [&] { return answer->done != 0; });
  return answer->done == 1;
}

void FailureMonitor::Core::run() {
  Deadline next = Deadline::after(kPeriod);
  for (;;) {
    std::deque<Task> tasks;
    bool stop;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, next.remaining(), [&] { return stop_ || !tasks_.empty(); });
      tasks.swap(tasks_);
      stop = stop_;
      busy_since_ = Clock::now();
    }
    for (Task& task : tasks) try {
        task(*store_);
      } catch (const std::exception& e) {
        log_debug("the watch of the ranks: {}", e.what());
      }
    if (stop) break;
    if (next.expired()) {
      look();
      next = Deadline::after(kPeriod);
    }
    std::lock_guard lock(mutex_);
    busy_since_.reset();
  }
  store_.reset();
  std::lock_guard lock(mutex_);
  has_ended_ = true;
  ended_.notify_all();
}

void FailureMonitor::Core::settle(const std::string& name, const Failure& failure) {
  auto at = groups_.find(name);
  if (at == groups_.end() || at->second.failure) return;
  at->second.failure = failure;
  at->second.on_failure(failure);
}

// A single request while there is no news.
void FailureMonitor::Core::look() try {
  if (!store_lost_.empty()) return;
  const int64_t count = store_->count_keys("news/");
  if (count == seen_) return;
  std::vector<std::string> groups, keys;
  {
    std::lock_guard lock(groups_mutex_);
    for (auto& [name, group] : groups_) groups.push_back(name);
  }
  for (auto& name : groups) keys.push_back(failed_key(name));
  for (int r = 0; r < size_; ++r) {
    keys.push_back(lost_key(r));
    keys.push_back(left_key(r));
  }
  const auto missing = store_->missing(keys);
  const std::set<std::string> absent(missing.begin(), missing.end());
  for (int r = 0; r < size_; ++r) {
    if (!absent.count(left_key(r))) left_.insert(r);
    // The will was executed although its owner had announced that it left: the owner ended in time.
    if (!absent.count(lost_key(r)) && !left_.count(r) && !lost_.count(r))
      lost_[r] = store_->try_get(lost_key(r)).value_or("");
  }
  for (auto& name : groups) {
    std::optional<Failure> failure;
    if (!absent.count(failed_key(name)))
      failure = failure_from(store_->try_get(failed_key(name)).value_or(""));
    std::vector<int> members;
    {
      std::lock_guard lock(groups_mutex_);
      if (auto at = groups_.find(name); at != groups_.end()) members = at->second.world_ranks;
    }
    for (auto& [rank, text] : lost_) {
      if (failure || std::find(members.begin(), members.end(), rank) == members.end()) continue;
      const Failure lost{Failure::Kind::lost, rank, text};
      failure = failure_from(store_->compare_set(failed_key(name), "", to_text(lost)));
    }
    if (!failure) continue;
    std::lock_guard lock(groups_mutex_);
    settle(name, *failure);
  }
  seen_ = count;
} catch (const std::exception& e) {
  store_lost_ = e.what();
  if (!left_.empty()) return;  // it may have closed in order
  std::lock_guard lock(groups_mutex_);
  std::vector<std::string> names;
  for (auto& [name, group] : groups_) names.push_back(name);
  for (auto& name : names) settle(name, {Failure::Kind::lost, -1, store_lost_});
}

}  // namespace trireme::detail
