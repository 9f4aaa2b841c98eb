// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/base/export.h"

// When a run saves. Pure: steps and seconds in, save or not out.
namespace trireme {

struct SaveRules {
  int64_t every = 0;         // steps; 0: not by number
  int64_t every_too = 0;     // the same, of another key
  double every_seconds = 0;  // 0: not by the clock
  bool automatic = false;    // as often as `budget` allows
  double budget = 0.02;      // share of the time that saving takes from training
};

/// Seconds are of one clock that began with the run. One rank asks by_clock(), because clocks
/// differ, and tells the others with its next step; by_number() every rank asks for itself.
class TRIREME_API SaveSchedule {
 public:
  /// Automatic saves begin no sooner after the end of the one before, however cheap they are.
  static constexpr double kLeastSeconds = 10;
  /// The first automatic save is after this step of the process: it measures what a save costs,
  /// and finds out early that the folder takes one.
  static constexpr int64_t kFirstStep = 2;

  explicit SaveSchedule(const SaveRules& rules) : rules_(rules) {}

  /// The step with this number is to be saved.
  bool by_number(int64_t step) const;
  /// The step that begins at `now` is to be saved when it is done: with it, the last save is
  /// `every_seconds` ago; or a save that costs what the last one did leaves the time spent on
  /// saving, since the run began, at `budget` of all time or less.
  bool by_clock(double now) const;
  /// A step took so long. Beside a save under way, whose threads take CPUs and memory bandwidth
  /// from it: by how much the median of such steps is above that of the last others is, for each of
  /// them, part of what that save costs. One step that stalls is not.
  void step_done(double seconds);
  /// A save held the run up for so long, until `now`, well or not. That is all it costs, unless it
  /// is under way from now on.
  void saved(double now, double seconds, bool under_way = false);
  /// The save under way has ended.
  void written(double now);

 private:
  static constexpr size_t kCalmSteps = 15;     // that others are measured by
  static constexpr size_t kMostBeside = 1000;  // that are measured of one save

  SaveRules rules_;
  int64_t steps_ = 0;
  double step_seconds_ = 0, last_ = 0, spent_ = 0;
  double calm_since_ = 0;  // the end of the last save
  bool under_way_ = false;
  std::optional<double> cost_;   // of the last save: what it was waited for
  std::optional<double> slows_;  // … and by how much, about, it slows the steps beside it
  double slowed_ = 0;            // … all saves together
  std::vector<double> calm_;     // seconds of the last steps beside no save, in turn
  size_t turn_ = 0;
  std::vector<double> beside_;  // … of the steps beside the save under way, the first kMostBeside
  int64_t steps_beside_ = 0;
};

/// What ranks ask for with a step, as one number that rides with it. Of several ranks' the largest
/// holds: a request to stop, which implies a save, before a save, before the news that the save
/// under way has ended (which may be lost: the next save waits for that one), before the wish for
/// another group (which is said again with the next step).
struct StepWish {
  int stop = 0;  // the signal, say; 0: go on
  bool save = false;
  bool ended = false;
  bool regroup = false;
  int code() const { return 8 * stop + 4 * save + 2 * ended + regroup; }
  static StepWish of(int code) {
    return {code / 8, code / 4 != 0, code / 2 % 2 != 0, code % 2 != 0};
  }
};

}  // namespace trireme
