// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"

namespace trireme {

/// What ranks tell each other in every round beside the gradients, in one small all_reduce behind
/// the last bucket: which parameters each used, and one number per rank for each *fact* that some
/// part registered (a sample weight, "I have no more batches", "I saw a NaN"). Exact: float64,
/// whatever the gradients are, and no communication hook touches it. Because all ranks read the
/// same, all take the same decision without another exchange.
///
/// 8 bytes × (parameters + facts × ranks). Every rank registers the same facts, in the same order,
/// before the first round.
class TRIREME_API RoundRecord {
 public:
  RoundRecord(Group group, size_t parameters, at::Device device);

  using Fact = size_t;
  /// `give` is asked on each rank as its last bucket is launched.
  Fact add(std::function<double()> give);

  void send(const std::vector<bool>& used);
  /// Waits. Then the rest tells of this round.
  void read();
  /// Ranks that used a parameter.
  int used_by(size_t parameter) const { return static_cast<int>(all_[parameter]); }
  at::Device device() const { return device_; }
  /// A fact's number on each rank.
  std::vector<double> of(Fact fact) const;
  double sum(Fact fact) const;

 private:
  Group group_;
  size_t parameters_;
  at::Device device_;
  std::vector<std::function<double()>> facts_;
  at::Tensor wire_;
  std::vector<double> all_;
  Work work_;
};

}  // namespace trireme
