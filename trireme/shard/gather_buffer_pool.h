// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme {

/// Memory that whole parameters, or whole gradients, live in while they are needed: gather buffers
/// from Group::empty, used again and again. Makes a gather buffer where no free one is large
/// enough, so there are as many as were ever in use at once.
class GatherBufferPool {
 public:
  explicit GatherBufferPool(Group group) : group_(std::move(group)) {}
  GatherBufferPool(const GatherBufferPool&) = delete;

  /// `elements` of that dtype; contents undefined. The smallest free gather buffer that is large
  /// enough.
  at::Tensor take(int64_t elements, const at::TensorOptions& options);
  /// What take() gave.
  void give_back(const at::Tensor& gather_buffer);

  int in_use() const { return in_use_; }
  int64_t bytes() const;  // of all gather buffers

 private:
  struct GatherBuffer {
    at::Tensor memory;
    bool used = false;
  };
  Group group_;
  std::vector<GatherBuffer> gather_buffers_;
  int in_use_ = 0;
};

}  // namespace trireme
