// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// The part of the CPU time that a rank had, of that which it might have had.
struct RankShare {
  int rank = 0;
  double part = 0;
};

/// "CPU: rank 3 was busiest, 98 % of its CPU; rank 0 idlest, 41 %"; "" for less than two ranks.
TRIREME_API std::string busiest_and_idlest(const std::vector<RankShare>& shares);

/// The share of this process in a stretch of time, on `cpus` CPUs.
class TRIREME_API CpuShare {
 public:
  explicit CpuShare(double cpus);
  /// Since the last take(), or construction.
  double take();

 private:
  double cpus_;
  Clock::time_point since_;
  double seconds_;
};

}  // namespace trireme
