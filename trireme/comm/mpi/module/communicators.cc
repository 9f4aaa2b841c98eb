// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "trireme/comm/mpi/module/module.h"

namespace trireme::mpi_module {
namespace {

int describe_comm(MPI_Comm comm, bool owned, TriremeMpiComm* out) {
  out->handle = new Communicator{comm, owned};
  int code = MPI_Comm_rank(comm, &out->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(comm, &out->size);
  void* value = nullptr;
  int found = 0;
  if (code == MPI_SUCCESS) code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  out->max_tag = found ? *static_cast<int*>(value) : 32767;  // what the standard promises
  return code;
}

int own(int code, MPI_Comm comm, TriremeMpiComm* out) {
  if (code != MPI_SUCCESS) return code;
  // The caller's handler may be the default, which ends the process.
  code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return code == MPI_SUCCESS ? describe_comm(comm, true, out) : code;
}

}  // namespace

bool adopt(const void* bytes, size_t count, TriremeMpiComm* out, char* why, size_t why_size) {
  std::lock_guard lock(process().one_at_a_time);
  MPI_Comm comm = MPI_COMM_WORLD;
  if (bytes && count != sizeof comm) {
    std::snprintf(why, why_size, "this is not an MPI_Comm of " TRIREME_MPI_LIBRARY);
    return false;
  }
  if (bytes) std::memcpy(&comm, bytes, sizeof comm);
  if (comm == MPI_COMM_NULL) {
    std::snprintf(why, why_size, "the communicator is MPI_COMM_NULL");
    return false;
  }
  int inter = 0;
  if (MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter) {
    std::snprintf(why, why_size,
                  "an inter-communicator has two groups of ranks: merge them first "
                  "(MPI_Intercomm_merge)");
    return false;
  }
  if (describe_comm(comm, false, out) == MPI_SUCCESS) return true;
  std::snprintf(why, why_size, "this is not a communicator");
  return false;
}

int duplicate(void* handle, TriremeMpiComm* out) {
  std::lock_guard lock(process().one_at_a_time);
  MPI_Comm comm = MPI_COMM_NULL;
  const int code = MPI_Comm_dup(of(handle), &comm);
  return own(code, comm, out);
}

int create(void* handle, const int32_t* ranks, int32_t count, int32_t tag, TriremeMpiComm* out) {
  std::lock_guard lock(process().one_at_a_time);
  MPI_Group all, some;
  int code = MPI_Comm_group(of(handle), &all);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Group_incl(all, count, ranks, &some);
  MPI_Comm comm = MPI_COMM_NULL;
  if (code == MPI_SUCCESS) {
    code = MPI_Comm_create_group(of(handle), some, tag, &comm);
    code = own(code, comm, out);
    MPI_Group_free(&some);
  }
  MPI_Group_free(&all);
  return code;
}

void release(void* handle, bool keep) {
  Process& p = process();
  std::lock_guard lock(p.one_at_a_time);
  auto* c = static_cast<Communicator*>(handle);
  if (c->owned && !keep && alive()) MPI_Comm_free(&c->comm);
  delete c;
}

}  // namespace trireme::mpi_module
