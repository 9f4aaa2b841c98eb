// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/base/error.h"
#include "trireme/store/key_table.h"
#include "trireme/store/protocol.h"

namespace trireme::detail {

/// What the table says to a request that needs nothing but the table. nullopt: get, wait and the
/// wills, which are the connection's business.
std::optional<Reply> answer(KeyTable& table, const Request& request);

/// The reply to a request that failed like this.
Reply reply_to(const Error& error);

}  // namespace trireme::detail
