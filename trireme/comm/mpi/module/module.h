// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "trireme/comm/mpi/abi.h"

// libtrireme_mpi_<flavour>.so: the only code that links MPI, built once for each MPI installed.
namespace trireme::mpi_module {

static_assert(sizeof(MPI_Request) <= sizeof(TriremeMpiRequest));

/// The state of MPI in this process; there is one.
struct Process {
  std::mutex one_at_a_time;
  const TriremeMpiHost* host = nullptr;
  bool started = false;
  bool ours_to_finalize = false;
  double exit_patience = 0;
  std::vector<MPI_Request> abandoned;
  /// For float16 and bfloat16, by ReduceOp: sum, min, max, product.
  MPI_Op half_ops[2][4];
};
Process& process();

struct Communicator {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = false;
};

inline MPI_Comm of(void* handle) { return static_cast<Communicator*>(handle)->comm; }

inline MPI_Request request_of(TriremeMpiRequest bits) {
  MPI_Request request;
  std::memcpy(&request, &bits, sizeof request);
  return request;
}
inline TriremeMpiRequest bits_of(MPI_Request request) {
  TriremeMpiRequest bits = 0;
  std::memcpy(&bits, &request, sizeof request);
  return bits;
}

/// False after MPI_Finalize.
bool alive();
MPI_Datatype type_of(uint8_t dtype);
MPI_Op op_of(uint8_t dtype, uint8_t op);
void make_half_ops(Process& process);

// start.cc
bool initialized();
bool start(const TriremeMpiHost* host, char* why, size_t why_size);
void set_exit_patience(double seconds);
void abandon(const TriremeMpiRequest* requests, size_t count);
// communicators.cc
bool adopt(const void* comm, size_t bytes, TriremeMpiComm* out, char* why, size_t why_size);
int duplicate(void* comm, TriremeMpiComm* out);
int create(void* comm, const int32_t* ranks, int32_t count, int32_t tag, TriremeMpiComm* out);
void release(void* comm, bool keep);
// calls.cc
void fill_calls(TriremeMpiModule& table);

}  // namespace trireme::mpi_module
