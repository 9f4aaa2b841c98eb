// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/clock.h"

namespace trireme {
class Store;
namespace detail {

/// For each rank the lowest rank on its host. Ranks share a host exactly when one reaches the
/// other's abstract Unix socket: then they can share memory too. TRIREME_HOST_ID, where it is set,
/// decides instead. Every rank calls it; Timeout names those that did not.
std::vector<int> find_hosts(Store& store, int rank, int size, Deadline deadline);

}  // namespace detail
}  // namespace trireme
