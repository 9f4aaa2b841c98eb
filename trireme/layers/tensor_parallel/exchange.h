// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/base/call_site.h"
#include "trireme/comm/group.h"
#include "trireme/layers/tensor_parallel/split_plan.h"

// The three calls below the regions and the layers, without autograd. Results and buffers lie in
// memory that peers read in place, where the group has such memory.
namespace trireme::detail {

/// Uninitialised, contiguous: Group::empty() for more than one rank.
at::Tensor reachable_empty(const Group& group, at::IntArrayRef sizes, const at::Tensor& like);

/// The whole of a tensor whose dim `dim` is divided into `parts`, one a rank.
at::Tensor gather_parts(const at::Tensor& part, Group group, int64_t dim,
                        const std::vector<Part>& parts, CallSite site);

/// The sum of the ranks' tensors, of which each rank gets its part of `dim`. The products that are
/// added may be written straight into the buffer: slot(r) is where rank r's part belongs.
class ReduceScatter {
 public:
  ReduceScatter(Group group, at::IntArrayRef sizes, int64_t dim, std::vector<Part> parts,
                const at::Tensor& like);
  /// Rank r's part, of the sizes with parts[r] in `dim`. Contiguous unless shorter than another.
  at::Tensor slot(int rank) const;
  /// Copies a whole tensor into the slots.
  void fill(const at::Tensor& whole);
  void post(CallSite site);
  /// Waits; this rank's part, in memory of its own.
  at::Tensor result();

 private:
  Group group_;
  int64_t dim_, longest_ = 0;
  std::vector<Part> parts_;
  at::Tensor buffer_, output_;
  Work work_;
};

}  // namespace trireme::detail
