// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "trireme/comm/group.h"

namespace trireme {

/// One implementation of all_reduce that the bench times: ours, or another system's called as its
/// users call it. Sums in place.
class BenchPeer {
 public:
  virtual ~BenchPeer() = default;
  virtual void all_reduce(at::Tensor& tensor) = 0;
  virtual bool supports(at::ScalarType) const { return true; }
};

/// `world`: our own group of the same ranks, to agree on addresses.
std::unique_ptr<BenchPeer> local_peer(Group world);
/// torch's ProcessGroupGloo. UsageError where this build has no Gloo headers.
std::unique_ptr<BenchPeer> gloo_peer(Group world);
/// MPI_Allreduce, from the module trireme-mpi-peer.so beside the worker. The ranks must have been
/// started by mpirun. UsageError where the module was not built.
std::unique_ptr<BenchPeer> mpi_peer(Group world);

}  // namespace trireme
