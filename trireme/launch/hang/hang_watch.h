// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/export.h"

// Which ranks hang, from the marks that they make (base/events/progress_marks.h). Pure: marks and
// time come in, a verdict comes out.
//
// A rank is silent since its last mark was seen. Only time that the launcher itself has looked at
// counts, and at most half a second of it for each look: a launcher that was stopped, or a machine
// that was asleep, accuses nobody. How long a rank may be silent:
//
//   in a step          max(limit, 10 × the median of its last 31 steps)
//   in anything else,  max(10 × limit, 10 × the longest time between two marks that it has made in
//   and its first step the same phase)
namespace trireme::launch {

constexpr Duration kMostOfALook = std::chrono::milliseconds(500);

class TRIREME_API HangWatch {
 public:
  explicit HangWatch(Duration limit) : limit_(limit) {}

  /// `id` stands for a process that marks. `time_ns`: what it says itself; it counts only as far as
  /// it can be true.
  void marked(int id, Activity at, int64_t step, uint64_t time_ns);
  void alive(int id);
  void gone(int id) { ranks_.erase(id); }
  /// So much time has passed since the last look, in which the marks above were seen.
  void look(Duration since_last_look);

  struct Rank {
    Activity at = Activity::none;
    int64_t step = 0;
    Duration silence{};
    Duration limit{};
    Duration median{};  // of its steps; zero: there are none yet
    bool is_silent() const { return silence >= limit; }
  };
  /// Nothing: it is not watched.
  std::optional<Rank> rank(int id) const;
  bool watches_any() const { return !ranks_.empty(); }

 private:
  struct Watched {
    Activity at = Activity::none;
    int64_t step = 0;
    uint64_t time_ns = 0;  // of the last progress mark
    bool fresh = true;     // since the last look
    Duration silence{};
    Duration in_phase{};  // that was looked at
    std::deque<Duration> steps;
    std::array<Duration, kActivities> longest{};  // silence that ended, in each phase

    void end_silence();
  };
  Duration median_of(const Watched& w) const;

  Duration limit_;
  std::map<int, Watched> ranks_;
};

/// A rank as its launcher sees it.
struct RankInSight {
  int rank = 0;
  int pid = 0;
  HangWatch::Rank marks;
  std::string waits_in;  // the call that it waits in; "": none
  bool stopped = false;  // by a signal or a debugger
  bool is_watched() const { return marks.at != Activity::none; }
};

struct HangVerdict {
  std::vector<size_t> blamed;  // of those in sight
  /// "rank 1 (pid 4711) hangs in step 3: …; rank 0 waits for it in all_reduce(…)".
  std::string sentence;
  /// The same of each in the end: what a second attempt is compared with.
  std::string cause;
};

/// A rank hangs that is silent for longer than it may be, and does not wait for others, or is
/// stopped. Where all that are in sight are silent and wait, they wait for each other, if they are
/// the whole job; else for a rank on another node, and its launcher says so. A rank that has made
/// no mark, or none any more (Activity::none), is not watched: it is the one that hangs where it is
/// stopped and all others wait for too long. Nothing: nobody hangs.
TRIREME_API std::optional<HangVerdict> judge_hang(const std::vector<RankInSight>& in_sight,
                                                  int ranks_of_job);

}  // namespace trireme::launch
