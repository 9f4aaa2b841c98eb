// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/bench_ops.h"
#include "trireme/comm/group.h"

namespace trireme {

/// One call that the bench times, with everything that is not part of it made before.
struct BenchCall {
  bench::Op op = bench::Op::barrier;
  bench::Red red = bench::Red::sum;
  const bench::Type* type = nullptr;
  int root = 0;
  at::Tensor in, out;                           // the same one where the op is in place
  std::vector<at::Tensor> in_parts, out_parts;  // views of one rank's part each, for lists
};

/// One implementation that the bench times: ours, or another system's called as its users call it.
class BenchPeer {
 public:
  virtual ~BenchPeer() = default;
  /// Returns when this rank's part is complete. Op::barrier always works: ranks line up by it
  /// before a timed call.
  virtual void run(BenchCall& call) = 0;
  /// "", or why this one cannot do it.
  virtual std::string lacks(bench::Op op, bench::Red red, const bench::Type& type) const = 0;
};

/// `group`: what is timed. Named as its backend.
std::unique_ptr<BenchPeer> group_peer(Group group);
/// torch's own ProcessGroupGloo over the same ranks. `world`: our group, to agree on addresses.
/// UsageError where this build has no Gloo headers.
std::unique_ptr<BenchPeer> gloo_peer(Group world);
/// MPI_Allreduce and its like, from the module trireme-mpi-peer.so beside the worker. The ranks
/// must have been started by mpirun. UsageError where the module was not built.
std::unique_ptr<BenchPeer> mpi_peer(Group world);

at::ScalarType scalar_type_of(const bench::Type& type);

}  // namespace trireme
