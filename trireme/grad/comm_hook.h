// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/comm/group.h"

namespace trireme {

/// What a communication hook is given: one full bucket. `buffer` is flat and 1-D: the gradients of
/// its parameters, then a short tail that must be reduced with them (used mask and weights; a hook
/// that changes precision may treat it like gradients, and one that drops elements must keep it).
struct GradBucket {
  int index = 0;
  bool is_last = false;
  at::Tensor buffer;
  int64_t gradients = 0;  // elements before the tail
};

/// Reduces bucket.buffer in place over the group; called in bucket order on every rank. `op` is avg
/// for a bare DDP and sum where the training step scales (docs/vocabulary.md).
using CommHook = std::function<Work(Group& group, GradBucket& bucket, ReduceOp op)>;

}  // namespace trireme
