// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/worker/bench_run.h"

// trireme bench --tune: the algorithms of all_reduce instead of backends, and the table that keeps
// which was fastest.
namespace trireme::bench {

/// "direct", which is the backend's own all_reduce, then ours over its sends and receives.
std::vector<NamedPeer> algorithm_peers(Group world, const std::vector<int>& hosts);

/// Adds the rows to this host's table (`path`; "": in the user's cache) and says what was chosen;
/// the first rank of every host writes. Where results were wrong, or others used more than 5 % of
/// the machine and not `force`: nothing is written, and ResourceError says why.
void save_tuning(const Result& result, const Group& world, const std::vector<int>& hosts,
                 const std::string& path, bool force, Output& output);

}  // namespace trireme::bench
