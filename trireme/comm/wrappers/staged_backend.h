// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"

namespace trireme::detail {

/// Around a backend that reads the CPU's memory alone: calls on tensors of other devices go through
/// pinned host memory, in order with the device's streams. post() waits for no stream and no peer:
/// the tensors are copied to the host on a stream of this backend's own, behind what the current
/// stream has been given; the inner call is made when they have come; the result is copied back,
/// and wait() orders the current stream behind that copy. Calls reach the inner backend in the
/// order in which they were posted, those on the CPU's tensors too, which go straight through while
/// none waits for its copy. Progress is made by the caller, in every call of this class.
///
/// Where this process has no device but the CPU, it returns `inner` itself.
std::shared_ptr<Backend> staged_backend(std::shared_ptr<Backend> inner);

}  // namespace trireme::detail
