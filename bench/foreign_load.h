// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
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
  // This process, those that it started and has reaped, and those that it started and runs.
  static double own() {
    double sum = 0;
    for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage u{};
      ::getrusage(who, &u);
      for (const timeval& t : {u.ru_utime, u.ru_stime})
        sum += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    }
    struct Process {
      int parent = 0;
      double seconds = 0;
    };
    std::map<int, Process> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const int pid = std::atoi(entry.path().filename().c_str());
      if (pid <= 0) continue;
      std::string text;
      std::getline(std::ifstream(entry.path() / "stat"), text);
      const size_t name = text.rfind(')');
      if (name == std::string::npos) continue;  // it has ended
      std::istringstream words(text.substr(name + 1));
      std::string word;
      Process p;
      words >> word >> p.parent;
      for (int field = 5; field < 14; ++field) words >> word;
      for (int field = 14; field < 18; ++field) {  // its own, and its reaped children's
        double ticks = 0;
        words >> ticks;
        p.seconds += ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
      }
      all[pid] = p;
    }
    for (const auto& [pid, process] : all) {
      int above = process.parent;
      while (above != ::getpid() && all.count(above)) above = all[above].parent;
      if (above == ::getpid()) sum += process.seconds;
    }
    return sum;
  }

  Clock::time_point begin_;
  double machine_, own_;
};

}  // namespace trireme
