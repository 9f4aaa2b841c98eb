// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/group.h"
#include "trireme/comm/local/engine.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// Makes the Host of rank `rank` of a group with `size` ranks; every member must call it with the
/// same name.
using MakeLocalHost =
    std::function<std::unique_ptr<local::Host>(int rank, int size, const std::string& name)>;

/// The local engine as a backend of Group, for CPU tensors of ranks on one host. `keep` (the job's
/// store, the threads' world) lives as long as the backend. make_host: for groups of some of the
/// ranks. name: of the group, in errors and dumps of the flight recorder; "": neither it nor groups
/// made of it leave dumps, because an outer backend leaves its own.
std::shared_ptr<Backend> local_backend(std::unique_ptr<local::Host> host, Duration timeout,
                                       std::shared_ptr<void> keep = {},
                                       MakeLocalHost make_host = {},
                                       const std::string& name = "world");

/// Makes rank spec.rank of the threads of spec.threads, or else of processes on this host that meet
/// through spec.store. If spec.size is 1 it is alone.
std::shared_ptr<Backend> local_backend(const BackendSpec& spec);

}  // namespace trireme::detail
