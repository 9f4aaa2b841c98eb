// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

namespace trireme::pretend {

/// The arguments of one operator, lent to a CPU's kernel: tensors of the device as tensors of the
/// CPU on the same bytes. Tensors that share a storage share one there, so that the kernel's views
/// are recognised as such, and what it writes is written.
class Borrowed {
 public:
  at::Tensor lend(const at::Tensor& device_tensor);
  /// What the kernel returned, for the device: an argument itself, a view of one, or a new tensor.
  at::Tensor take_back(const at::Tensor& result, c10::Device device) const;
  /// After the kernel: arguments that it gave another size or other memory have it.
  void keep_changes() const;

 private:
  struct Pair {
    at::Tensor ours, lent;
  };
  struct Lent {
    c10::Storage ours, lent;
    const void* bytes;
  };
  const Lent* storage_of(const at::Tensor& lent) const;

  std::vector<Pair> tensors_;
  std::map<c10::StorageImpl*, Lent> storages_;  // by ours
};

}  // namespace trireme::pretend
