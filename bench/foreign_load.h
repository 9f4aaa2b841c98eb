// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "trireme/base/clock.h"

namespace trireme {

/// What others took of the machine's CPU time since construction. A figure is void above 0.05.
class ForeignLoad {
 public:
  ForeignLoad() : begin_(Clock::now()), machine_(machine()), own_(own()) {}
  double part() const {
    const double foreign = (machine() - machine_) - (own() - own_);
    return std::max(0.0, foreign) /
           (seconds_since(begin_) * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)));
  }

 private:
  static double machine() {
    std::ifstream stat("/proc/stat");
    std::string word;
    double user = 0, nice = 0, system = 0;
    stat >> word >> user >> nice >> system;  // interrupts serve whoever measures
    return (user + nice + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  static double own() {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(u.ru_utime) + seconds(u.ru_stime);
  }

  Clock::time_point begin_;
  double machine_, own_;
};

}  // namespace trireme
