// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"

namespace trireme {

/// What ranks exchange in every round in addition to the gradients, in one small all_reduce after
/// the last bucket: which parameters each used, and one number per rank for each *fact* that a
/// component registered (a sample weight, "I have no more batches", "I saw a NaN"). It is exact:
/// float64, whatever the gradients' dtype, and no communication hook touches it. All ranks read the
/// same record, so they reach the same decision without another exchange.
///
/// Size: 8 bytes × (parameters + facts × ranks). Every rank registers the same facts, in the same
/// order, before the first round.
class TRIREME_API RoundRecord {
 public:
  RoundRecord(Group group, size_t parameters, at::Device device);

  using Fact = size_t;
  /// `give` is called on each rank when its last bucket is launched.
  Fact add(std::function<double()> give);

  void send(const std::vector<bool>& used);
  /// Waits for the exchange; the calls below then describe this round.
  void read();
  /// The number of ranks that used a parameter.
  int used_by(size_t parameter) const { return static_cast<int>(all_[parameter]); }
  at::Device device() const { return device_; }
  /// The number that each rank gave for a fact.
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
