// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>
#include <torch/csrc/api/include/torch/version.h>

#include <cstring>

// Where LibTorch 1.13 and 2.x ask different things of a device of one's own.
namespace trireme::pretend {

/// An allocator that says how to allocate; the rest is LibTorch's form of the day.
struct AllocatorBase : c10::Allocator {
  virtual c10::DataPtr allocate_bytes(size_t bytes) const = 0;
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return allocate_bytes(bytes); }
  void copy_data(void* dst, const void* src, size_t bytes) const override {
    std::memcpy(dst, src, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override { return allocate_bytes(bytes); }
#endif
};

}  // namespace trireme::pretend
