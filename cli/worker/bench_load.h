// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/group.h"

namespace trireme::bench {

/// Above this the machine was not ours, and no verdict is given.
constexpr double kMostForeignLoad = 0.05;

struct Load {
  double wall = 0, own = 0;  // seconds; own: CPU time of all ranks
  double foreign = 0;        // others' CPU time, as a part of the machine's; of the worst host
};

/// What this job and everybody else take of this machine from here on. Every rank has one.
class LoadMeter {
 public:
  /// one_process: the ranks are threads, and share one account. hosts[r]: where rank r runs.
  LoadMeter(bool one_process, std::vector<int> hosts);
  /// Collective.
  Load stop(Group& world) const;

 private:
  bool one_process_;
  std::vector<int> hosts_;
  Clock::time_point begin_;
  double machine_, own_;
};

}  // namespace trireme::bench
