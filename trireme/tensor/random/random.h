// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// Random tensors that are a pure function of a key, whatever the number of ranks, threads or
// micro-batches (docs/design.md, section 3). Initialisation is keyed by (seed, parameter name,
// element); dropout by (seed, module name, call number in this forward, step, global sample,
// element). The same numbers on every device.
namespace trireme {

/// Fills a tensor of a float dtype in place. `key` selects the stream; element i uses word i%4 of
/// block i/4. Drawn on the CPU; for another device, in pinned memory that is copied in the order of
/// its current stream.
TRIREME_API void uniform_(at::Tensor t, uint64_t key, double low, double high);
/// Likewise, by the Box–Muller transform, computed in float64.
TRIREME_API void normal_(at::Tensor t, uint64_t key, double mean, double std);

/// Identifies what the current forward computes. The trainer sets it around each forward (and each
/// recomputation); rows of dim 0 of an activation are the samples. Thread-local.
struct RandomContext {
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<int64_t> samples;  // global sample id of each row of the micro-batch
};

class TRIREME_API RandomScope {
  struct State;

 public:
  /// The state of a thread's scope: its context and its call numbers, or that there was none.
  class Snapshot {
    friend class RandomScope;
    std::shared_ptr<const State> state_;
  };
  static Snapshot snapshot();

  explicit RandomScope(RandomContext context);  // call numbers restart at 0
  /// Restores everything as it was at the snapshot, to repeat the same computation.
  explicit RandomScope(const Snapshot& snapshot);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  /// The innermost scope's context; nullptr outside any scope.
  static const RandomContext* current();
  /// Returns 0, 1, … for successive calls of the module with this name within the scope.
  static int64_t next_call(uint64_t module_key);

 private:
  State* state_;
  State* before_;
};

/// Drops elements of x with probability p and scales the rest by 1/(1-p). x: [samples, …], of a
/// float dtype. Differentiable; the mask is recomputed in backward, not stored. A large one is
/// drawn on x's device, a small one on the CPU, with the same result. Throws UsageError
/// if x.size(0) is not the number of samples in the scope.
TRIREME_API at::Tensor keyed_dropout(const at::Tensor& x, double p, std::string_view module_name);

/// Seeds LibTorch's default CPU generator, from which stock modules draw.
TRIREME_API void seed_default_generator(uint64_t seed);

}  // namespace trireme
