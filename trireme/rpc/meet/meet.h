// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/net/secret.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/rpc/options.h"

// What rpc::init() finds by itself, where Options leaves it open.
namespace trireme::rpc::detail {

/// "trainer1": what a launcher calls this process (TRIREME_ROLE, or ROLE_NAME as torchrun says it,
/// and its number among those of its role). "": nobody has.
TRIREME_API std::string name_of_process(const net::Getenv& env = net::process_env);

/// Roads that lead to all workers of the job: shared memory alone where they are all on this host;
/// else TCP, too, under the job's secret, at the address of this host that the others reach.
/// `table`: what the job's store says of where it is. UsageError: there is no secret.
TRIREME_API std::vector<Road> roads_of_job(const RankEnv& job, const std::string& table,
                                           const net::Getenv& env = net::process_env);

struct Met {
  Options options;
  /// The rank is the process's. Where another worker of this process has it already, this worker
  /// goes without.
  bool process_rank = false;
};
/// Fills the name, the store (with the rank and the generation that belong to it) and the roads.
/// UsageError, ResourceError, and what open_job_table() throws.
TRIREME_API Met meet(Options options, const net::Getenv& env = net::process_env);

}  // namespace trireme::rpc::detail
