// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/process/cpu_share.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/device.h"

namespace trireme {

/// How much of their CPUs, and of their devices' memory, the ranks of a group use.
class UseOfRanks {
 public:
  UseOfRanks(Group group, at::Device device);

  /// Of which ranks the most and the least is known; on rank 0 alone, and nowhere for one rank.
  struct Extremes {
    std::string sentence;                                // "CPU: rank 3 was busiest, …"
    std::vector<std::pair<std::string, double>> fields;  // for the metrics
  };
  /// Since the last call. Every rank must make it.
  Extremes lately();
  /// Since construction. Every rank must call it.
  Extremes in_all();

 private:
  Extremes compare(double cpu_part);

  Group group_;
  at::Device device_;
  CpuShare lately_, in_all_;
};

}  // namespace trireme
