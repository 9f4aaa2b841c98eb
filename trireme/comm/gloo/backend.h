// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// Ranks on several hosts, CPU tensors, over the connections of torch's ProcessGroupGloo. Every
/// rank of the group calls it.
///
/// Gloo carries bytes (its send and recv, straight between the tensors' memory); the collectives
/// and the reductions are ours. So every dtype and op of the local backend is here, with the same
/// bits: elements are reduced in the same fixed order. Bytes that a rank sends: all_reduce and
/// reduce of large tensors 2(n-1)/n of the tensor, reduce_scatter and all_gather (n-1)/n of the
/// larger one. Collectives run one after the other on a thread of the group's; messages between
/// pairs beside them. Tags of messages go up to 65519.
///
/// Calls that differ between ranks never move data to the wrong place: messages carry op, dtype,
/// count and root in their tag. They end in Mismatch after about a second, or in Timeout.
///
/// Failure: a rank that dies is a PeerLost on every other rank within seconds, also where its host
/// or its link goes (the store's connection tells); one that is stopped is a Timeout, which names
/// the ranks that did not arrive. Either ends the group: its connections are closed, and another
/// group can be built.
///
/// Data ports are neither authenticated nor encrypted, so they belong on a trusted network. They
/// are bound to one address: of the interface GLOO_SOCKET_IFNAME, else the one that this host has
/// on the way to the store's host; where all ranks reach the store without a network, loopback.
std::shared_ptr<Backend> gloo_backend(const BackendSpec& spec);
bool has_gloo();

}  // namespace trireme::detail
