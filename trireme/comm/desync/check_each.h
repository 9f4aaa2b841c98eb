// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/desync/wait_watch.h"

namespace trireme::detail {

/// Implements check=each (checked_backend.h). watch: null if the ranks have no board; board_ranks:
/// this group's ranks in the board's numbering.
std::shared_ptr<Backend> check_each(std::shared_ptr<Backend> inner, const std::string& group,
                                    std::shared_ptr<WaitWatch> watch, std::vector<int> board_ranks);

}  // namespace trireme::detail
