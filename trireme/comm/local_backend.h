// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/group.h"
#include "trireme/comm/local/engine.h"

namespace trireme::detail {

/// The local engine as a backend of Group: CPU tensors of ranks on one host. `keep` lives as long
/// as the backend (the job's store, the threads' world).
std::shared_ptr<Backend> local_backend(std::unique_ptr<local::Host> host, Duration timeout,
                                       std::shared_ptr<void> keep = {});

}  // namespace trireme::detail
