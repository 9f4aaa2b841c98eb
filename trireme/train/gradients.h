// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

class Reducer;

struct LossSum {
  double sum = 0;      // over a rank's samples or tokens
  int64_t weight = 0;  // how many
};

struct GradientOptions {
  size_t bucket_bytes = 0;    // 0: what suits the backend
  bool reproducible = false;  // leaves are added along the tree of design §3
  bool find_unused = false;   // a parameter need not get a gradient on every rank
  CommHook hook{};            // how a bucket is reduced; empty: all_reduce
};

/// Gradients of a training step: *sums* over micro-batches and ranks, each of a summed loss. The
/// one division by the global weight is the optimizer's grad_scale (docs/vocabulary.md); a bare
/// DistributedDataParallel takes means instead.
class TRIREME_API Gradients {
 public:
  /// Checks that ranks hold the same parameters and takes rank 0's.
  Gradients(NamedTensors parameters, const NamedTensors& buffers, Group group,
            GradientOptions options = {});
  ~Gradients();

  /// A step begins; each parameter will get up to `micro_batches` contributions.
  void open(int micro_batches);
  void begin_micro_batch(int i);
  /// This rank's loss so far, to ride with the last bucket: before each backward.
  void tell(const LossSum& loss, int stop_asked);
  struct Told {
    std::vector<double> sums, weights, stops;  // by rank
  };
  /// After close(), on every rank.
  Told told() const;
  /// For who accumulates into p.grad() without autograd (fp16.emulate): the gradient of the i-th
  /// parameter has got a contribution.
  void ready(size_t i);
  /// Waits for the sums over ranks. UsageError on all of them, with the names, for parameters that
  /// not every rank used (unless find_unused).
  void close();

  /// The first gradient of the last step that was not finite on its own rank, before the sum: the
  /// same on every rank.
  struct NotFinite {
    int rank = -1;  // -1: none
    std::string parameter;
  };
  NotFinite not_finite() const;

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
