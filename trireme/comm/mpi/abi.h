// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The interface between libtrireme and a module libtrireme_mpi_<flavour>.so. libtrireme does not
// link MPI, and a module does not link LibTorch: only pointers, counts, dtypes and ops (the numbers
// of local::DType and ReduceOp) cross this boundary. Unless stated otherwise, functions return
// MPI's error code (0: success); none throws. They may be called from any thread: a module admits
// one at a time, so that MPI_THREAD_SERIALIZED suffices.
extern "C" {

constexpr uint32_t kTriremeMpiAbi = 1;

/// Callbacks for a module. They live until the process ends.
struct TriremeMpiHost {
  uint32_t abi;
  /// inout[i] = in[i] ∘ inout[i], for dtypes that MPI does not support.
  void (*reduce)(uint8_t dtype, uint8_t op, const void* in, void* inout, size_t count);
};

/// A communicator. Tags of messages are 0 … max_tag.
struct TriremeMpiComm {
  void* handle;
  int32_t rank, size, max_tag;
};

/// The status of a complete request: the sender, and the size.
struct TriremeMpiStatus {
  int32_t source;
  int64_t bytes;
};

enum TriremeMpiError : int32_t {
  kTriremeMpiOther,
  kTriremeMpiTruncated,  // more arrived than was requested
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
  /// Calls MPI_Init_thread if the program has not, and then finalizes at exit. If it returns false,
  /// `why` says what is wrong. Takes effect once per process; further calls check that all is well.
  bool (*start)(const TriremeMpiHost* host, char* why, size_t why_size);
  /// The end of this process waits up to `seconds` for that of the other ranks.
  void (*set_exit_patience)(double seconds);
  /// Marks requests that will not be waited for.
  void (*abandon)(const TriremeMpiRequest* requests, size_t count);

  /// Gets the communicator in these bytes (null: MPI_COMM_WORLD), which stays its owner's.
  bool (*adopt)(const void* comm, size_t bytes, TriremeMpiComm* out, char* why, size_t why_size);
  /// Collective: makes our own communicator of the same ranks. Waits for all of them.
  int (*duplicate)(void* comm, TriremeMpiComm* out);
  /// Collective over `ranks` (of `comm`). Waits for all of them.
  int (*create)(void* comm, const int32_t* ranks, int32_t count, int32_t tag, TriremeMpiComm* out);
  /// Releases a duplicated, adopted or created communicator. `keep`: calls on it are incomplete,
  /// and the libraries do not survive freeing it, so only the handle is released.
  void (*release)(void* comm, bool keep);

  /// Each of these starts a request. in == null: the data is in place (MPI_IN_PLACE).
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
  /// For any count: above `limit` elements it is sent as one element of a derived type. from == -1:
  /// any.
  int (*send)(void* comm, const void* data, int64_t count, int64_t limit, uint8_t dtype, int32_t to,
              int32_t tag, TriremeMpiRequest* request);
  int (*recv)(void* comm, void* data, int64_t count, int64_t limit, uint8_t dtype, int32_t from,
              int32_t tag, TriremeMpiRequest* request);

  /// Makes progress on all requests of this process.
  int (*test)(TriremeMpiRequest* request, bool* done, TriremeMpiStatus* status);
  /// Checks for a message with this tag, and from which rank.
  int (*probe)(void* comm, int32_t tag, bool* found, int32_t* source);

  TriremeMpiError (*describe)(int code, char* text, size_t text_size);
};

/// `trireme_mpi_module`: returns null if the module has a version other than `abi`.
using TriremeMpiEntry = const TriremeMpiModule* (*)(uint32_t abi);

}  // extern "C"
