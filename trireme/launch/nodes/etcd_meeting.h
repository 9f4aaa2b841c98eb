// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/launch/nodes/meeting.h"

namespace trireme::launch {

/// Nodes that meet through etcd. The launcher that comes first opens the job's store, at a port
/// that the kernel chooses, and says under /trireme/ID/store where it is; the others go there, and
/// prove the job's secret to it as everywhere: etcd never sees that. The key has a lease, so an
/// address whose launcher died is gone after fifteen seconds, and the next who comes opens a store.
/// Until then, and while an earlier job of this name still ends, launchers wait.
/// nullopt: asked to stop. UsageError: no etcd is there, or the name is another job's; Timeout.
std::optional<Meeting> open_etcd_meeting(const RunOptions& options,
                                         const net::Credentials& credentials, Deadline deadline,
                                         const std::function<bool()>& asked_to_stop);

/// Says there that the store is at `address`; nullptr: another address stands there. PeerLost: etcd
/// cannot say so now.
std::unique_ptr<EtcdPublication> publish_store(const RunOptions& options,
                                               const std::string& address,
                                               const std::function<bool()>& give_up);

}  // namespace trireme::launch
