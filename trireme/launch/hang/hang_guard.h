// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/events/event_reader.h"
#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/launch/hang/hang_watch.h"

namespace trireme::launch {

/// Holds the events of workers (base/events) and looks at their marks four times a second, from
/// when the first of them marks. It costs a socket where none does. One thread at a time.
class TRIREME_API HangGuard {
 public:
  /// Workers hand their memory over at this path. `limit`: HangWatch's. ResourceError.
  HangGuard(const std::string& path, Duration limit);
  ~HangGuard();
  HangGuard(const HangGuard&) = delete;

  /// The rank that a process is, which says that it is `said` itself; -1: none of ours, and it is
  /// not listened to.
  using RankOf = std::function<int(pid_t pid, int said)>;

  /// What poll(2) should watch; then serve(), which does not wait.
  void add_to(std::vector<pollfd>& fds) const;
  void serve(const RankOf& rank_of);
  /// When to look again; never: nobody is watched.
  Deadline next_look() const { return next_look_; }
  /// Looks, if it is time. Nothing: all go on, or are merely slow.
  struct Hang {
    std::vector<RankInSight> ranks;
    HangVerdict verdict;
  };
  /// `workers`: (rank, process) of those that have not ended here, whether they mark or not.
  std::optional<Hang> look(int ranks_of_job,
                           const std::vector<std::pair<int, pid_t>>& workers = {});
  /// One that hangs is being killed, and the others go on: they have been silent because of it.
  void begin_anew();
  /// An attempt is over.
  void forget_all();

 private:
  struct Worker {
    UniqueFd socket;
    pid_t pid = 0;
    int rank = -1;
    std::unique_ptr<EventReader> events;  // null: not handed over yet
    std::vector<bool> marks;              // of its lanes: those that have made a progress mark
  };
  bool accept_one();
  bool receive(Worker& worker, const RankOf& rank_of);
  void read_marks(int id, Worker& worker);
  std::string waits_in(const Worker& worker) const;

  std::string path_;
  UniqueFd listener_;
  HangWatch watch_;
  std::map<int, Worker> workers_;
  int next_id_ = 0;
  Clock::time_point last_look_;
  Deadline next_look_ = Deadline::never();
};

}  // namespace trireme::launch
