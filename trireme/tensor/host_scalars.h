// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/device.h"

namespace trireme {

/// Scalars of a step, a loss perhaps, that the host reads together: on a device that computes late,
/// one wait instead of one for each. On the CPU nothing waits.
class TRIREME_API HostScalars {
 public:
  /// `t` has one element. Does not block: its copy to the host is put in the current stream.
  void add(const at::Tensor& t);
  /// All of them, in the order in which they came. Waits for those that are not here yet, on what
  /// was their stream.
  const std::vector<double>& read();
  size_t size() const { return values_.size(); }
  void clear();

 private:
  struct Late {
    size_t at;
    at::Tensor here;
  };
  std::vector<double> values_;
  std::vector<Late> late_;
  DeviceEvent last_;
};

}  // namespace trireme
