// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/worker/peers/peer.h"

namespace trireme::bench {

/// One call with known values: how many elements of all ranks' results are wrong. Collective.
int64_t count_wrong(BenchPeer& peer, BenchCall& call, Group& world);

}  // namespace trireme::bench
