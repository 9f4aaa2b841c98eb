// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// A backend for CPU tensors of ranks on several hosts, over the connections of torch's
/// ProcessGroupGloo. Every rank of the group must call it.
///
/// Gloo only carries bytes (by its send and recv, directly between tensors' memory); the
/// collectives and reductions are ours. Every dtype and op of the local backend is therefore
/// supported, with the same bits: elements are reduced in the same fixed order. Bytes that a rank
/// sends: for all_reduce and reduce of large tensors 2(n-1)/n of the tensor, for reduce_scatter and
/// all_gather (n-1)/n of the larger one. Collectives run one after the other on the group's thread;
/// messages between pairs run concurrently. Tags of messages go up to 65519.
///
/// Calls that differ between ranks never move data to the wrong place, because op, dtype, count and
/// root are part of a message's tag. They end in Mismatch after about a second, or in Timeout.
///
/// Failure: when a rank dies, the others throw PeerLost within seconds, also if its host or link
/// fails (the store's connection detects it); when one is stopped, they throw Timeout naming the
/// missing ranks. Either ends the group: its connections are closed, and another group can be
/// built.
///
/// Data ports are neither authenticated nor encrypted, so use a trusted network. They are bound to
/// one address: that of the interface GLOO_SOCKET_IFNAME, or else this host's address on the route
/// to the store's host; if all ranks reach the store without a network, loopback.
std::shared_ptr<Backend> gloo_backend(const BackendSpec& spec);
bool has_gloo();

}  // namespace trireme::detail
