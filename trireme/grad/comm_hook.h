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
  size_t parameter = 0;  // index
  std::string name;
  int64_t offset = 0;   // in elements, within the buffer; parts begin on cache lines
  at::Tensor gradient;  // a view into the buffer, in the parameter's shape
  /// Whether all of it is finite, if that was determined when it was copied into the bucket.
  std::optional<bool> finite{};
};

/// The argument of a communication hook: one full bucket. `buffer` is 1-D and holds only gradients
/// (and zeros between them).
struct GradBucket {
  int index = 0;
  bool is_last = false;
  at::Tensor buffer;
  const std::vector<GradBucketPart>* parts = nullptr;  // valid during the call
};

/// Reduces bucket.buffer in place over the group; called in bucket order on every rank. `op` is avg
/// for a bare DDP, and sum if the caller scales later (docs/vocabulary.md). The result must be in
/// the buffer: a hook that replaces the tensor is refused. A hook that throws ends the group: the
/// other ranks get PeerLost with its message.
using CommHook = std::function<Work(Group& group, GradBucket& bucket, ReduceOp op)>;

}  // namespace trireme
