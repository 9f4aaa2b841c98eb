// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/base/export.h"

// Hydra, the launcher of MPICH, Intel MPI and MVAPICH, tells its ranks no job id. But all ranks of
// a job on one host come from one process of its, hydra_pmi_proxy.
namespace trireme {

/// /proc/<pid>/stat of a process; nullopt: there is none that we can see.
using ProcessStat = std::function<std::optional<std::string>(int pid)>;
TRIREME_API std::optional<std::string> process_stat(int pid);

/// "hydra-<pid>-<start time>" of the nearest proxy that process `pid` descends from, through
/// whatever shells and wrappers stand between; "": there is none.
TRIREME_API std::string hydra_job(int pid, const ProcessStat& stat = process_stat);
/// Of this process.
TRIREME_API std::string own_hydra_job();

}  // namespace trireme
