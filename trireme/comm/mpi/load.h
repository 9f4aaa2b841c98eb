// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/mpi/abi.h"
#include "trireme/comm/mpi/flavour.h"

// The module that links MPI is loaded when the mpi backend is requested, and never unloaded.
namespace trireme::detail {

/// Returns the files of the dynamic libraries in this process.
std::vector<std::string> loaded_libraries();

/// Returns the path of libtrireme_mpi_<flavour>.so: next to the library or program that contains
/// this code, or in the installation; "" if it is in neither.
std::string mpi_module_path(MpiFlavour flavour);

/// Loads the module and starts MPI unless the program has. Throws UsageError if there is no module
/// for this MPI, this process was not started for MPI, or MPI was initialised at too low a thread
/// level. `given`: the program's own MPI determines it.
const TriremeMpiModule& load_mpi(std::optional<MpiFlavour> given = {});

}  // namespace trireme::detail
