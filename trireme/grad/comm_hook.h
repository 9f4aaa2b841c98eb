// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme {

/// One parameter's place in a bucket.
struct GradBucketPart {
  size_t parameter = 0;  // its index
  std::string name;
  int64_t offset = 0;   // elements, in the buffer; parts begin on cache lines
  at::Tensor gradient;  // its alias, in the parameter's shape
  /// Whether all of it is finite, where that was seen on the way into the bucket.
  std::optional<bool> finite{};
};

/// What a communication hook is given: one full bucket. `buffer` is flat and 1-D and holds nothing
/// but gradients (and zeros between them).
struct GradBucket {
  int index = 0;
  bool is_last = false;
  at::Tensor buffer;
  const std::vector<GradBucketPart>* parts = nullptr;  // valid during the call
};

/// Reduces bucket.buffer in place over the group; called in bucket order on every rank. `op` is avg
/// for a bare DDP and sum where somebody scales later (docs/vocabulary.md). The buffer is the
/// result: a hook that puts another tensor into its place is refused. A hook that throws finishes
/// the group: the other ranks get PeerLost with its text.
using CommHook = std::function<Work(Group& group, GradBucket& bucket, ReduceOp op)>;

}  // namespace trireme
