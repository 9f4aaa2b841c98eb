// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// Torch's ProcessGroupNCCL as a backend: CUDA tensors, one GPU a rank. Every rank of the group
/// calls it.
///
/// wait() makes the current stream wait and not the CPU; barrier() is the exception. So an error
/// shows at a later call, at is_completed(), or in progress(): a call that is under way for longer
/// than the timeout is a Timeout. Reductions are NCCL's, in its order. Messages between pairs are
/// matched in the order of the calls: there are no tags (a tag other than 0 is a UsageError) and no
/// recv from any source. What is only moved may be of any dtype; int16 and bitwise ops do not
/// reduce.
///
/// A rank that dies is a PeerLost on the others within seconds: the store's connection tells, and
/// the communicators are aborted. Torch's own watchdog would end the process; it is switched off
/// (TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_ENABLE_MONITORING) where the program has not set
/// those variables. Traffic is neither authenticated nor encrypted: a trusted network, chosen with
/// NCCL_SOCKET_IFNAME.
std::shared_ptr<Backend> nccl_backend(const BackendSpec& spec);
bool has_nccl();

}  // namespace trireme::detail
