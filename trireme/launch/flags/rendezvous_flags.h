// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/launch/flags/run_flags.h"

// Where and how the launchers of several nodes meet, as torchrun's flags say it.
namespace trireme::launch {

/// "static", "c10d" or "etcd". UsageError for a name that is none of theirs; `origin`: the flag's.
std::string rdzv_backend_of(const std::string& origin, const std::string& value);

/// What --rdzv-* say together.
void settle_rendezvous(ParseState& s);

}  // namespace trireme::launch
