// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/desync/stall_watch.h"

namespace trireme::detail {

/// Implements check=hash (checked_backend.h). stalls: null if the ranks have no board; board_ranks:
/// this group's ranks in the board's numbering.
std::shared_ptr<Backend> check_hash(std::shared_ptr<Backend> inner, const std::string& group,
                                    std::shared_ptr<StallWatch> stalls,
                                    std::vector<int> board_ranks);

}  // namespace trireme::detail
