// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/net/auth.h"
#include "trireme/rendezvous/rank_env.h"

// What the processes of a job show each other.
namespace trireme::detail {

/// What all ranks of one attempt of one job know and nobody else of this user has: names the Unix
/// socket, and is said in the handshake. At most net::kMaxJobId bytes.
TRIREME_API std::string meeting_of(const RankEnv& env);

/// For a TCP port: the job's secret under this id, or none with TRIREME_INSECURE=1. UsageError:
/// neither is there. `launched`: the variables of a launcher of ours should have named it.
TRIREME_API net::Credentials tcp_credentials(const RankEnv& env, std::string job_id,
                                             const net::Getenv& getenv, bool launched);

}  // namespace trireme::detail
