// SPDX-License-Identifier: Apache-2.0
// trireme-mpi-peer.so: the only code of the bench that links MPI. Loaded when the bench is asked
// for mpi.
#include <mpi.h>

#include "cli/bench_ops.h"
#include "cli/worker/peers/mpi_call.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using trireme::bench::Op;
using trireme::bench::Red;

namespace {

MPI_Datatype type_of(int index) {
  // In the order of kTypes; half and bfloat16 are only moved.
  const MPI_Datatype types[] = {MPI_FLOAT,  MPI_DOUBLE,  MPI_UINT16_T, MPI_UINT16_T,
                                MPI_INT8_T, MPI_UINT8_T, MPI_INT32_T,  MPI_INT64_T};
  return types[index];
}

MPI_Op op_of(int red) {
  switch (static_cast<Red>(red)) {
    case Red::prod:
      return MPI_PROD;
    case Red::min:
      return MPI_MIN;
    case Red::max:
      return MPI_MAX;
    default:
      return MPI_SUM;
  }
}

int rank_ = -1, size_ = 0;

}  // namespace

EXPORTED const char* trireme_mpi_start(int rank, int size) {
  int ready = 0;
  MPI_Initialized(&ready);
  if (!ready && MPI_Init(nullptr, nullptr) != MPI_SUCCESS) return "MPI_Init failed";
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  if (size_ != size || rank_ != rank)
    return "MPI's world is another than this job's: start the ranks by mpirun";
  return nullptr;
}

EXPORTED int trireme_mpi_run(const TriremeMpiCall* c) {
  const MPI_Comm world = MPI_COMM_WORLD;
  const MPI_Datatype type = type_of(c->type);
  const MPI_Op red = op_of(c->red);
  const int count = static_cast<int>(c->count), root = c->root;
  switch (static_cast<Op>(c->op)) {
    case Op::all_reduce:
      return MPI_Allreduce(MPI_IN_PLACE, c->out, count, type, red, world);
    case Op::all_gather:
      return MPI_Allgather(c->in, count, type, c->out, count, type, world);
    case Op::reduce_scatter:
      return MPI_Reduce_scatter_block(c->in, c->out, count, type, red, world);
    case Op::broadcast:
      return MPI_Bcast(c->out, count, type, root, world);
    case Op::reduce:
      return rank_ == root ? MPI_Reduce(MPI_IN_PLACE, c->out, count, type, red, root, world)
                           : MPI_Reduce(c->in, nullptr, count, type, red, root, world);
    case Op::gather:
      return MPI_Gather(c->in, count, type, c->out, count, type, root, world);
    case Op::scatter:
      return MPI_Scatter(c->in, count, type, c->out, count, type, root, world);
    case Op::all_to_all:
      return MPI_Alltoall(c->in, count, type, c->out, count, type, world);
    case Op::sendrecv:
      return MPI_Sendrecv(c->in, count, type, (rank_ + 1) % size_, 0, c->out, count, type,
                          (rank_ + size_ - 1) % size_, 0, world, MPI_STATUS_IGNORE);
    case Op::pingpong: {
      if (rank_ > 1) return MPI_SUCCESS;
      const int other = 1 - rank_;
      int code = MPI_SUCCESS;
      if (rank_ == 0) code = MPI_Send(c->in, count, type, other, 0, world);
      if (code == MPI_SUCCESS)
        code = MPI_Recv(c->out, count, type, other, 0, world, MPI_STATUS_IGNORE);
      if (rank_ == 1 && code == MPI_SUCCESS) code = MPI_Send(c->out, count, type, other, 0, world);
      return code;
    }
    case Op::barrier:
      return MPI_Barrier(world);
  }
  return MPI_ERR_ARG;
}

EXPORTED void trireme_mpi_stop() {
  int over = 0;
  MPI_Finalized(&over);
  if (!over) MPI_Finalize();
}
