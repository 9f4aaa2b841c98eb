// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme {

/// What a round's record says of a parameter.
struct ParameterUse {
  std::string name;
  int ranks = 0;  // that used it
};

/// What happens, after a round, with parameters that not every rank used. Called on all ranks with
/// the same list (empty: all were used), so all take the same decision.
using UnusedPolicy = std::function<void(const std::vector<ParameterUse>& unused, int ranks)>;

/// UsageError naming them. The gradients of the round are reduced; a parameter that some ranks used
/// has its mean.
UnusedPolicy refuse_unused();
/// Logs, on rank 0, the names that no rank used, whenever they change.
UnusedPolicy name_unused(int rank);

}  // namespace trireme
