// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/mpi/abi.h"
#include "trireme/comm/mpi/flavour.h"

// The module that speaks to MPI is loaded when somebody asks for the mpi backend, and never
// unloaded.
namespace trireme::detail {

/// The files of the dynamic libraries in this process.
std::vector<std::string> loaded_libraries();

/// Where libtrireme_mpi_<flavour>.so is: beside the library or program that this code is in, or
/// where an installed one stands; "": nowhere.
std::string mpi_module_path(MpiFlavour flavour);

/// Loads the module and starts MPI unless the program has. UsageError: there is no module for this
/// MPI, nobody started this process for MPI, MPI was initialised at too low a thread level.
/// `given`: the program's own MPI says which one.
const TriremeMpiModule& load_mpi(std::optional<MpiFlavour> given = {});

}  // namespace trireme::detail
