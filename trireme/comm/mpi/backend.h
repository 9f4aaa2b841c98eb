// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/mpi/large_plan.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// A backend over Open MPI or MPICH, for CPU tensors of ranks that mpirun or srun started. Every
/// rank of the group must call it. A group named "world" is all of MPI_COMM_WORLD, and is refused
/// if that has a size other than spec.size or another order; any other name is a part of it, whose
/// ranks find each other through spec.store. MPI is initialised with MPI_THREAD_SERIALIZED unless
/// the program did so (at that level or higher), and is then finalized when the process exits with
/// 0 and its calls are complete.
///
/// Reductions are MPI's: the library chooses the order of ranks, so results may differ in the last
/// bits from those of other backends and libraries, and half types are rounded at each step. avg is
/// a sum, then a division by the size.
///
/// A rank that dies ends its job: mpirun or srun kills the others and reports it. A rank that waits
/// in vain queries the others: Timeout names those that are in no call of this group, or Mismatch
/// two that are in different ones. abort() notifies the others: those that wait in this group now,
/// and the rest at their next wait. MPI_Abort is never called.
std::shared_ptr<Backend> mpi_backend(const BackendSpec& spec);

/// The same over a communicator of the program (null: MPI_COMM_WORLD).
std::shared_ptr<Backend> mpi_backend_on(const void* comm, size_t bytes, bool is_pointer,
                                        Duration timeout, const MpiLimits& limits = {});

/// Whether a module for any MPI is installed.
bool has_mpi();

}  // namespace trireme::detail
