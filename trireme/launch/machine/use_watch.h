// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme::launch {

/// CPU seconds that a process and its descendants have had so far; nothing: it is gone, and was
/// waited for. An ended child counts once its parent has waited for it.
TRIREME_API std::optional<double> cpu_seconds_of_tree(pid_t pid);

/// How much CPU time the workers of this node take: /proc is read every few seconds, which costs
/// some 30 µs a worker. One thread.
class TRIREME_API UseWatch {
 public:
  using Read = std::function<std::optional<double>(pid_t)>;
  /// Of a job of less than `worth_saying` nothing is said.
  explicit UseWatch(Read read = cpu_seconds_of_tree,
                    Duration worth_saying = std::chrono::seconds(10))
      : read_(std::move(read)), worth_saying_(worth_saying) {}

  /// `cpus`: how many it may use.
  void watch(int rank, pid_t pid, double cpus);
  Deadline next_look() const { return next_; }
  /// Those that live, if it is time.
  void look();
  /// The last look at a worker, which has ended and is not waited for yet.
  void ended(pid_t pid);
  /// "CPU: rank 3 was busiest, 98 % of its CPU; rank 0 idlest, 41 %"; "": there is
  /// nothing to say, as of one worker.
  std::string sentence() const;

 private:
  struct Worker {
    int rank = 0;
    pid_t pid = 0;
    double cpus = 1;
    Clock::time_point begin, end;
    double seconds = 0;
    bool over = false;
  };
  void read(Worker& worker);

  Read read_;
  const Duration worth_saying_;
  std::vector<Worker> workers_;
  Deadline next_ = Deadline::never();
};

}  // namespace trireme::launch
