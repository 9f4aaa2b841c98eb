// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// Random tensors that are a pure function of a key, whatever the number of ranks, threads or
// micro-batches (design §3). Initialisation is keyed by (seed, parameter name, element); dropout by
// (seed, module name, call number in this forward, step, global sample, element).
namespace trireme {

/// Fills in place, float dtypes. `key` names the stream; element i draws block i/4, word i%4.
TRIREME_API void uniform_(at::Tensor t, uint64_t key, double low, double high);
TRIREME_API void normal_(at::Tensor t, uint64_t key, double mean,
                         double std);  // Box–Muller, float64 inside

/// What the forward under way is computing. Set around each forward (and each recompute) by the
/// trainer; rows of dim 0 of an activation are the samples. Thread-local.
struct RandomContext {
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<int64_t> samples;  // global sample id of each row of the micro-batch
};

class TRIREME_API RandomScope {
  struct State;

 public:
  /// Where a thread's scope stood: its context and its call numbers, or that there was none.
  class Snapshot {
    friend class RandomScope;
    std::shared_ptr<const State> state_;
  };
  static Snapshot snapshot();

  explicit RandomScope(RandomContext context);  // call numbers start again from 0
  /// Everything as it was then, for computing the same again.
  explicit RandomScope(const Snapshot& snapshot);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  /// nullptr outside any scope.
  static const RandomContext* current();
  /// 0, 1, … for each call of the module with this name within the scope.
  static int64_t next_call(uint64_t module_key);

 private:
  State* state_;
  State* before_;
};

/// x with elements dropped with probability p and the rest scaled by 1/(1-p); x: [samples, …],
/// float dtypes. Differentiable; the mask is recomputed in backward, not kept. Throws UsageError
/// where x.size(0) is not the number of samples of the scope.
TRIREME_API at::Tensor keyed_dropout(const at::Tensor& x, double p, std::string_view module_name);

/// Re-seeds LibTorch's default CPU generator for stock modules: hash(parts).
TRIREME_API void seed_default_generator(uint64_t seed);

}  // namespace trireme
