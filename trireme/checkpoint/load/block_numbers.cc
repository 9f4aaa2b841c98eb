// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/block_numbers.h"

namespace trireme {

std::vector<PartOfStep> parts_of(const CheckpointIndex& index) {
  std::vector<PartOfStep> parts;
  int64_t next = 0;
  for (const auto& [name, t] : index.tensors)
    for (const IndexPart& part : t.parts) {
      if (part.slice.numel() == 0) continue;
      parts.push_back({&t, &part, next});
      next += static_cast<int64_t>(part.blocks.size());
    }
  return parts;
}

}  // namespace trireme
