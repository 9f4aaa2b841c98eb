// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// Torch's ProcessGroupNCCL as a backend: CUDA tensors, one GPU per rank. Every rank of the group
/// must call it.
///
/// wait() makes the current stream wait, not the CPU, except after barrier(). Errors therefore
/// appear at a later call, at is_completed(), or in progress(); a call that takes longer than the
/// timeout is a Timeout. Reductions are NCCL's, in its order. Messages between pairs match in the
/// order of the calls: there are no tags (a nonzero tag is a UsageError) and no recv from any
/// source. Calls that only move data take any dtype; int16 and bitwise reductions are not
/// supported.
///
/// When a rank dies, the others throw PeerLost within seconds: the store's connection detects it,
/// and the communicators are aborted. Torch's own watchdog would end the process, so it is disabled
/// (TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_ENABLE_MONITORING) unless the program has set those
/// variables. Traffic is neither authenticated nor encrypted: choose a trusted network with
/// NCCL_SOCKET_IFNAME.
std::shared_ptr<Backend> nccl_backend(const BackendSpec& spec);
bool has_nccl();

}  // namespace trireme::detail
