// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/group.h"
#include "trireme/comm/local/engine.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// Makes the host of a group with `size` ranks of which this is number `rank`; every member calls
/// it with the same name.
using MakeLocalHost =
    std::function<std::unique_ptr<local::Host>(int rank, int size, const std::string& name)>;

/// The local engine as a backend of Group: CPU tensors of ranks on one host. `keep` lives as long
/// as the backend (the job's store, the threads' world). make_host: for groups of some of the
/// ranks. name: of the group, in errors and dumps of the flight recorder; "": it leaves no dumps,
/// nor do groups made of it (another backend stands on this one and leaves its own).
std::shared_ptr<Backend> local_backend(std::unique_ptr<local::Host> host, Duration timeout,
                                       std::shared_ptr<void> keep = {},
                                       MakeLocalHost make_host = {},
                                       const std::string& name = "world");

/// Rank spec.rank of the threads of spec.threads, else of processes on this host that meet through
/// spec.store; alone where spec.size is 1.
std::shared_ptr<Backend> local_backend(const BackendSpec& spec);

}  // namespace trireme::detail
