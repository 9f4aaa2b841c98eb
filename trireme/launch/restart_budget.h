// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme::launch {

/// --max-restarts, and --restart-window: at most so many restarts within any time of that length. A
/// long job that loses a worker now and then goes on, and one that fails again and again ends.
/// Pure: time comes in.
class TRIREME_API RestartBudget {
 public:
  /// `window` zero: so many in the whole job.
  RestartBudget(int most, Duration window) : most_(most), window_(window) {}

  int left(Clock::time_point now) const;
  /// There was one.
  void spend(Clock::time_point now);
  /// There have been so many in all, some of them before this launcher came: those count from now.
  void spend_until(int all, Clock::time_point now);
  /// In all.
  int spent() const { return spent_; }
  /// "restart 2 of 3", "restart 9; 2 of 3 within 600 s".
  std::string text(Clock::time_point now) const;

 private:
  int most_;
  Duration window_;
  int spent_ = 0;
  std::deque<Clock::time_point> times_;  // of the newest, at most `most_` of them
};

}  // namespace trireme::launch
