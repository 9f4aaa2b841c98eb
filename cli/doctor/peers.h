// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/doctor/advice.h"
#include "trireme/base/clock.h"
#include "trireme/rendezvous/rank_env.h"

// What only several ranks can see: who reaches whom, how fast, whose clock is off.
namespace trireme::doctor {

struct PeerOptions {
  RankEnv env;                         // who this process is
  std::string init_method = "env://";  // or tcp://host:port
  std::string master;                  // "": env's
  Duration timeout = std::chrono::seconds(60);
  /// This host's own report; called on the first rank of every host. Empty: no reports.
  std::function<Report()> examine;
};

/// Collective over the job. On rank 0 the whole: its own host's report, a section `peers`, and the
/// findings of the other hosts; elsewhere an empty one. Throws where the ranks do not meet.
Report examine_peers(const PeerOptions& options);

/// The environment of `--peers a,b,c`: every host runs the same line. rank < 0: found by comparing
/// the list with this host's name and addresses. UsageError where that names none or several.
RankEnv env_of_list(const std::vector<std::string>& hosts, int rank,
                    const std::vector<std::string>& own_names);
/// This host's name and addresses.
std::vector<std::string> own_names();

}  // namespace trireme::doctor
