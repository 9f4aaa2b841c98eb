// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/tensor/device.h"

namespace trireme::detail {

/// Pinned host memory for copies from and to devices, taken again and again: pinning costs more
/// than many a copy. What lies idle is bounded; what is taken is not. One thread at a time.
class HostPool {
 public:
  /// Dense, uninitialised, with the elements of `like`.
  at::Tensor take(const at::Tensor& like);
  /// `t`, which take() gave, may be taken again once `free` is reached.
  void give(const at::Tensor& t, DeviceEvent free);
  int64_t idle_bytes() const { return idle_bytes_; }
  static constexpr int64_t kMostIdle = int64_t{256} << 20;

 private:
  struct Idle {
    at::Tensor bytes;  // the whole block
    at::DeviceType partner;
    DeviceEvent free;
  };
  struct Taken {
    at::Tensor bytes;
    at::DeviceType partner;
  };
  std::vector<Idle> idle_;
  std::vector<Taken> taken_;
  int64_t idle_bytes_ = 0;
};

}  // namespace trireme::detail
