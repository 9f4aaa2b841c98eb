// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/check.h"

// How code of the CPU gets at a tensor's elements: with a check that they are in the host's memory,
// so that a device's tensor on such a path is a sentence and not a fault. The kernels themselves
// (*_kernels.cc) take plain pointers. house_pointers looks for other ways.
namespace trireme {

/// Where the elements begin. They must be T, strided, in host memory: UsageError for another
/// device's. The caller sees to contiguity and to what is still late (tensor/device.h).
template <class T>
T* host_data(const at::Tensor& t) {
  check<UsageError>(t.device().is_cpu(),
                    "a tensor on {} cannot be read by the CPU where it is: copy it to the CPU",
                    t.device().str());
  return t.data_ptr<T>();
}

/// The same of any dtype, as bytes or as bits.
template <class T = void>
T* host_bits(const at::Tensor& t) {
  check<UsageError>(t.device().is_cpu(),
                    "a tensor on {} cannot be read by the CPU where it is: copy it to the CPU",
                    t.device().str());
  return static_cast<T*>(t.data_ptr());
}

/// Where a tensor's elements begin, on any device: to be compared, never read.
inline const void* memory_of(const at::Tensor& t) { return t.data_ptr(); }
/// They begin at one place.
inline bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return memory_of(a) == memory_of(b);
}

}  // namespace trireme
