// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"
#include "trireme/train/in_place/kept_boxes.h"

namespace trireme {

/// What a checkpoint would hold of one rank, in memory of this process alone, from when its group
/// was lost until it is in the parts of another.
class TRIREME_API KeptState {
 public:
  void clear() { *this = KeptState(); }

  /// Copies what the walk visits: nothing refers to memory that others can write.
  void take(const StateWalk& walk);
  /// What is kept, sorted.
  std::vector<KeptBox> boxes() const;
  /// A value of this name, or `otherwise`.
  int64_t integer(const std::string& name, int64_t otherwise) const;

  /// Fills what the walk visits, on every rank of the group, which all call it, out of what those
  /// that have a box send to all. It walks twice, as a load may. ResourceError: the walk visits
  /// what nobody has kept, or what differs between ranks.
  void fill(const StateWalk& walk, Group group, const std::vector<BoxSent>& sent);
  /// Those that any rank keeps, on every rank, which all call it; of several the first rank's.
  void share_values(Group group);

 private:
  friend class KeepingVisitor;
  friend class FillingVisitor;
  struct Values {
    std::map<std::string, int64_t> integers;
    std::map<std::string, double> numbers;
    std::map<std::string, std::string> texts;
    TRIREME_FIELDS(integers, numbers, texts)
  };
  std::map<KeptBox, at::Tensor> tensors_;
  Values values_;
};

/// The elements of each tensor of which the walk visits some.
WholeState whole_state_of(const StateWalk& walk);

}  // namespace trireme
