// SPDX-License-Identifier: Apache-2.0
// trireme-mpi-peer.so: the only code that links MPI. Loaded when the bench is asked for mpi; a C
// interface, so that the worker needs no MPI header.
#include <mpi.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// 0 where MPI is up and this rank is `rank` of `size`; else what is wrong.
EXPORTED const char* trireme_mpi_start(int rank, int size) {
  int ready = 0, r = -1, n = 0;
  MPI_Initialized(&ready);
  if (!ready && MPI_Init(nullptr, nullptr) != MPI_SUCCESS) return "MPI_Init failed";
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  if (n != size || r != rank)
    return "MPI's world is another than this job's: start the ranks by mpirun";
  return nullptr;
}

EXPORTED int trireme_mpi_all_reduce(void* data, long count, int is_double) {
  return MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count),
                       is_double ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

EXPORTED void trireme_mpi_stop() {
  int over = 0;
  MPI_Finalized(&over);
  if (!over) MPI_Finalize();
}
