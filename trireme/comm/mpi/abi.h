// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// What libtrireme and a module libtrireme_mpi_<flavour>.so know of each other. libtrireme links no
// MPI and a module links no LibTorch: pointers, counts, dtypes and ops (the numbers of
// local::DType and ReduceOp) cross here. Functions return MPI's error code (0: well) unless it
// says otherwise; none of them throws. They may be called from any thread: a module lets one in at
// a time, so that MPI_THREAD_SERIALIZED is enough.
extern "C" {

constexpr uint32_t kTriremeMpiAbi = 1;

/// What a module calls back. Lives until the process ends.
struct TriremeMpiHost {
  uint32_t abi;
  /// inout[i] = in[i] ∘ inout[i], for the dtypes that MPI does not know.
  void (*reduce)(uint8_t dtype, uint8_t op, const void* in, void* inout, size_t count);
};

/// A communicator. Tags of messages are 0 … max_tag.
struct TriremeMpiComm {
  void* handle;
  int32_t rank, size, max_tag;
};

/// Of a request that is complete: who sent, and how much.
struct TriremeMpiStatus {
  int32_t source;
  int64_t bytes;
};

enum TriremeMpiError : int32_t {
  kTriremeMpiOther,
  kTriremeMpiTruncated,  // more arrived than was asked for
  kTriremeMpiPeerLost,
  kTriremeMpiNoMemory,
};

/// A request is the bytes of an MPI_Request.
using TriremeMpiRequest = uint64_t;

struct TriremeMpiModule {
  uint32_t abi;
  const char* library;  // "Open MPI 4.1.4", "MPICH 4.0.2": what it was built with

  /// Whether the program has called MPI_Init.
  bool (*initialized)();
  /// Calls MPI_Init_thread where nobody has, and then finalizes at exit. False: `why` says what is
  /// wrong. Once per process; further calls see that all is well.
  bool (*start)(const TriremeMpiHost* host, char* why, size_t why_size);
  /// Up to `seconds` the end of this process waits for the other ranks' before it goes without
  /// them.
  void (*set_exit_patience)(double seconds);
  /// These requests will not be waited for.
  void (*abandon)(const TriremeMpiRequest* requests, size_t count);

  /// The communicator of these bytes (null: MPI_COMM_WORLD), which stays its owner's.
  bool (*adopt)(const void* comm, size_t bytes, TriremeMpiComm* out, char* why, size_t why_size);
  /// Collective: a communicator of our own with the same ranks. Waits for all of them.
  int (*duplicate)(void* comm, TriremeMpiComm* out);
  /// Collective over `ranks` (of `comm`). Waits for all of them.
  int (*create)(void* comm, const int32_t* ranks, int32_t count, int32_t tag, TriremeMpiComm* out);
  /// Of a duplicate, an adopted or a created one. `keep`: calls on it are not complete, and the
  /// libraries do not survive that it is freed: only the handle goes.
  void (*release)(void* comm, bool keep);

  /// All of these start a request. in == null: the data is in place (MPI_IN_PLACE).
  int (*barrier)(void* comm, TriremeMpiRequest* request);
  int (*all_reduce)(void* comm, void* data, int32_t count, uint8_t dtype, uint8_t op,
                    TriremeMpiRequest* request);
  int (*broadcast)(void* comm, void* data, int32_t count, uint8_t dtype, int32_t root,
                   TriremeMpiRequest* request);
  int (*reduce)(void* comm, const void* in, void* out, int32_t count, uint8_t dtype, uint8_t op,
                int32_t root, TriremeMpiRequest* request);
  int (*all_gather)(void* comm, const void* in, void* out, int32_t count, uint8_t dtype,
                    TriremeMpiRequest* request);
  int (*reduce_scatter)(void* comm, const void* in, void* out, int32_t count, uint8_t dtype,
                        uint8_t op, TriremeMpiRequest* request);
  int (*gather)(void* comm, const void* in, void* out, int32_t count, uint8_t dtype, int32_t root,
                TriremeMpiRequest* request);
  /// out == null: in place, on the root.
  int (*scatter)(void* comm, const void* in, void* out, int32_t count, uint8_t dtype, int32_t root,
                 TriremeMpiRequest* request);
  /// Of any count: above `limit` elements it is one element of a type made for it. from == -1: any.
  int (*send)(void* comm, const void* data, int64_t count, int64_t limit, uint8_t dtype, int32_t to,
              int32_t tag, TriremeMpiRequest* request);
  int (*recv)(void* comm, void* data, int64_t count, int64_t limit, uint8_t dtype, int32_t from,
              int32_t tag, TriremeMpiRequest* request);

  /// Moves everything of this process forward.
  int (*test)(TriremeMpiRequest* request, bool* done, TriremeMpiStatus* status);
  /// Is there a message with this tag, and from whom?
  int (*probe)(void* comm, int32_t tag, bool* found, int32_t* source);

  TriremeMpiError (*describe)(int code, char* text, size_t text_size);
};

/// `trireme_mpi_module`: null where the module speaks another version than `abi`.
using TriremeMpiEntry = const TriremeMpiModule* (*)(uint32_t abi);

}  // extern "C"
