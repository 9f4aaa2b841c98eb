// SPDX-License-Identifier: Apache-2.0
#include "tests/channel/conformance.h"

#include "tests/channel/conformance_processes.h"
#include "tests/channel/local/local_workers.h"

namespace trireme::channel {
namespace {

/// No windows: everything goes through the ring.
std::unique_ptr<Hub> make_without_windows(conformance::HubSettings settings) {
  return local_hub({.self = settings.self,
                    .accept = std::move(settings.accept),
                    .spin = settings.spin,
                    .most_window_bytes = 0});
}

}  // namespace

TRIREME_CHANNEL_CONFORMANCE(channel_local_conformance, make_local)
TRIREME_CHANNEL_CONFORMANCE_OF_PROCESSES(channel_local_conformance, make_local)
TRIREME_CHANNEL_CONFORMANCE(channel_local_without_windows, make_without_windows)
TRIREME_CHANNEL_CONFORMANCE_OF_PROCESSES(channel_local_without_windows, make_without_windows)

}  // namespace trireme::channel
