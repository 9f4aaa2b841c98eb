// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/mpi/large_plan.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// Open MPI or MPICH: ranks that mpirun or srun started, CPU tensors. Every rank of the group calls
/// it. A group named "world" is all of MPI_COMM_WORLD, and is refused where that has another size
/// than spec.size or another order; any other name is a part of it, whose ranks find each other
/// through spec.store. MPI is initialised at MPI_THREAD_SERIALIZED unless the program did it (at
/// that or more), and then finalized when the process exits with 0 and all its calls are complete.
///
/// Reductions are MPI's: which ranks' elements meet first is the library's choice, so results may
/// differ in the last bits from those of other backends and other libraries, and half types are
/// rounded at each step. avg is a sum, then a division by the size.
///
/// A rank that dies ends its job: mpirun or srun kill the others and say so. A rank that waits in
/// vain asks the others where they are: Timeout names those that are in no call of this group, or
/// Mismatch two that are in different ones. abort() tells the others, those that wait in this group
/// now and the rest at their next wait. MPI_Abort is never called.
std::shared_ptr<Backend> mpi_backend(const BackendSpec& spec);

/// The same over a communicator of the program's (null: MPI_COMM_WORLD).
std::shared_ptr<Backend> mpi_backend_on(const void* comm, size_t bytes, bool is_pointer,
                                        Duration timeout, const MpiLimits& limits = {});

/// A module for some MPI is there.
bool has_mpi();

}  // namespace trireme::detail
