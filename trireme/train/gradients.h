// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

class Reducer;

/// Gradients of a training step: *sums* over micro-batches and ranks, each of a summed loss. The
/// one division by the global weight is the optimizer's grad_scale (docs/vocabulary.md); a bare
/// DistributedDataParallel takes means instead.
class TRIREME_API Gradients {
 public:
  /// Checks that ranks hold the same parameters and takes rank 0's. reproducible: leaves are added
  /// along the tree of design §3. hook: how a bucket is reduced; empty: all_reduce.
  Gradients(NamedTensors parameters, const NamedTensors& buffers, Group group, size_t bucket_bytes,
            bool reproducible, CommHook hook = {});
  ~Gradients();

  /// A step begins; each parameter will get up to `micro_batches` contributions.
  void open(int micro_batches);
  void begin_micro_batch(int i);
  /// Waits for the sums over ranks.
  void close();

  const NamedTensors& parameters() const { return parameters_; }
  const Reducer& reducer() const;
  /// Gradient buffers that the tree keeps on this rank beside the buckets.
  int tree_buffers(int micro_batches) const;

 private:
  struct Impl;
  NamedTensors parameters_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
