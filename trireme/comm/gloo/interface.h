// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// The address of this host at which the group's other ranks reach it: the one on the way to the
/// store's host. "127.0.0.1" where all ranks reach the store without a network. The ranks find out
/// together; every one calls it. `where` says how this one reaches the store (Store::describe()).
/// `look` is called while it waits, and may throw. Timeout names the ranks that did not come.
std::string data_address(Store& store, int rank, int size, const std::string& where,
                         Deadline deadline, const std::function<void()>& look);

}  // namespace trireme::detail
