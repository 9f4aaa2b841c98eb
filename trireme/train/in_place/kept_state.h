// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// What a checkpoint would hold of one rank, in memory of this process alone, from when its group
/// was lost until it is in the parts of another. Ranks hold the same (plain data parallelism).
class TRIREME_API KeptState {
 public:
  void clear() { *this = KeptState(); }

  /// Copies what the walk visits: nothing refers to memory that others can write.
  void take(const StateWalk& walk);
  /// A value of this name, or `otherwise`.
  int64_t integer(const std::string& name, int64_t otherwise) const;

  /// Fills what the walk visits with `source`'s, on every rank of the group, which all call it;
  /// `all_hold`: each of them has the same, and nothing is sent. ResourceError: the walk visits
  /// what was not kept, or what differs between ranks.
  void fill(const StateWalk& walk, Group group, int source, bool all_hold);
  /// Those of `source`, on every rank; every rank calls it.
  void share_values(Group group, int source);

 private:
  friend class KeepingVisitor;
  friend class FillingVisitor;
  struct Values {
    std::map<std::string, int64_t> integers;
    std::map<std::string, double> numbers;
    std::map<std::string, std::string> texts;
    TRIREME_FIELDS(integers, numbers, texts)
  };
  std::map<std::string, at::Tensor> tensors_;
  Values values_;
};

}  // namespace trireme
