// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/net/endpoint.h"

namespace trireme {

/// Where the ranks of one job on one host meet without a launcher of ours: an abstract Unix socket
/// whose name all of them can work out. It is made of the effective user and of `meeting`, which is
/// the same on every rank of the job and on no other job of the user (job id, attempt, MASTER_ADDR
/// and MASTER_PORT). Another user may take the name first but not pass for us: both ends ask the
/// kernel who the other is.
TRIREME_API net::Endpoint unix_store_endpoint(std::string_view meeting);

}  // namespace trireme
