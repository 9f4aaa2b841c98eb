// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

// The C interface of trireme-mpi-peer.so, so that the worker needs no MPI header and the module no
// LibTorch.

struct TriremeMpiCall {
  int op;    // trireme::bench::Op
  int red;   // trireme::bench::Red
  int type;  // index into trireme::bench::kTypes
  int root;
  const void* in;
  void* out;      // == in where the op is in place
  int64_t count;  // elements: of the whole buffer in place and for send and receive, else of a part
};

/// nullptr where MPI is up and this rank is `rank` of `size`; else what is wrong.
typedef const char* (*TriremeMpiStart)(int rank, int size);
/// 0, or MPI's code.
typedef int (*TriremeMpiRun)(const TriremeMpiCall*);
typedef void (*TriremeMpiStop)();
