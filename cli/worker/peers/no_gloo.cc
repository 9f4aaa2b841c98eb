// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/peers/peer.h"
#include "trireme/base/check.h"

namespace trireme {

std::unique_ptr<BenchPeer> gloo_peer(Group) {
  fail<UsageError>(
      "bench: this build has no Gloo (its headers were not found; on Debian: libgloo-dev); leave "
      "gloo out of --backend");
}

}  // namespace trireme
