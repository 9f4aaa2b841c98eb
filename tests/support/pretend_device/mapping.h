// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace trireme::pretend {

constexpr int kDevices = 4;
constexpr size_t kBytesPerDevice = size_t{2} << 30;  // of addresses; pages come when written

/// The memory of all pretend devices: one memfd, mapped twice. The addresses that tensors carry
/// have no access rights; kernels and copies use the other mapping.
class Mapping {
 public:
  Mapping();
  Mapping(const Mapping&) = delete;

  /// Where a device's memory begins, as tensors see it.
  char* begin(int device) const { return tensors_ + static_cast<size_t>(device) * kBytesPerDevice; }
  bool holds(const void* p) const { return p >= tensors_ && p < tensors_ + kBytes; }
  int device_of(const void* p) const;
  /// The same byte in the mapping that may be touched. Null stays null.
  void* for_kernels(const void* p) const;

 private:
  static constexpr size_t kBytes = kBytesPerDevice * kDevices;
  char *tensors_, *kernels_;
};

}  // namespace trireme::pretend
