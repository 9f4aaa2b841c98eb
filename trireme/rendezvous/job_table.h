// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/store/store.h"

namespace trireme {

/// The job's table of keys for those who come and go in it: unlike open_store(), nobody takes a
/// rank's seat or waits for the others, and several threads of a process may each have it. A
/// connection of the caller's own. Where it is:
///   TRIREME_STORE    our launcher keeps it: connect, as open_store() does
///   a world of one   in this process, for all of it that ask
///   all on one host  rank 0 serves an abstract Unix socket; no secret
///   several hosts    rank 0 serves one of the ports beside MASTER_PORT; takes the job's secret
/// Attempts of a job do not see each other's keys. Where rank 0 serves, it does so until the last
/// of its own connections is gone, and then waits up to half a minute for the others to leave; who
/// comes before it knocks until the deadline. UsageError, ResourceError, Timeout.
TRIREME_API std::shared_ptr<Store> open_job_table(const RankEnv& env, Deadline deadline,
                                                  const net::Getenv& getenv = net::process_env);

}  // namespace trireme
