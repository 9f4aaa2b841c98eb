// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/block_numbers.h"

namespace trireme {

void number_blocks(CheckpointIndex& index) {
  int64_t next = 0;
  for (auto& [name, t] : index.tensors)
    for (IndexPart& part : t.parts) {
      part.first_block = next;
      if (part.slice.numel() > 0) next += static_cast<int64_t>(part.blocks.size());
    }
}

std::vector<PartOfStep> parts_of(const CheckpointIndex& index) {
  std::vector<PartOfStep> parts;
  for (const auto& [name, t] : index.tensors)
    for (const IndexPart& part : t.parts)
      if (part.slice.numel() > 0) parts.push_back({&t, &part});
  return parts;
}

}  // namespace trireme
