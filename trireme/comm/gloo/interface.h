// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// Returns the address at which the group's other ranks reach this host: the one on the route to
/// the store's host, or "127.0.0.1" if all ranks reach the store without a network. The ranks
/// determine it together, so every one must call it. `where` says how this rank reaches the store
/// (Store::describe()). `look` is called while it waits, and may throw. Timeout names the missing
/// ranks.
std::string data_address(Store& store, int rank, int size, const std::string& where,
                         Deadline deadline, const std::function<void()>& look);

}  // namespace trireme::detail
