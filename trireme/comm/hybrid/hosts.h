// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/clock.h"

namespace trireme {
class Store;
namespace detail {

/// Returns for each rank the lowest rank on its host. Ranks share a host exactly if one reaches the
/// other's abstract Unix socket, which means that they can also share memory. TRIREME_HOST_ID
/// overrides this if set. Every rank must call it; Timeout names those that did not.
std::vector<int> find_hosts(Store& store, int rank, int size, Deadline deadline);

}  // namespace detail
}  // namespace trireme
