// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/comm/start/run.h"
#include "trireme/rendezvous/rank_env.h"

namespace trireme::detail {

/// The backend of a world: shared memory reaches no other host, so "local" is "hybrid" where the
/// launcher says that there are several.
std::string backend_for(const InitOptions& options, const RankEnv& env);

}  // namespace trireme::detail
