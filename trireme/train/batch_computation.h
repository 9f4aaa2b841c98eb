// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "trireme/data/batch.h"

namespace trireme {

struct Run;

/// How a rank computes its micro-batches: all of the model, one micro-batch after another, or the
/// stages that it has, as a pipeline's schedule says.
class BatchComputation {
 public:
  BatchComputation() = default;
  virtual ~BatchComputation() = default;
  BatchComputation(const BatchComputation&) = delete;

  /// Forward and backward of all micro-batches. The loss and stop_asked travel with the gradients,
  /// which are open. Stores the index of the current micro-batch in `at`.
  virtual void train(Run& run, const Batch& batch, int stop_asked, size_t& at) = 0;
  /// Whether this rank computes the loss.
  virtual bool computes_loss() const { return true; }
  /// The model's outputs for a micro-batch of held-out data, on ranks that compute them; nothing on
  /// others.
  virtual std::optional<std::vector<at::Tensor>> outputs(Run& run, const MicroBatch& micro) = 0;
};

std::unique_ptr<BatchComputation> compute_in_turn();

}  // namespace trireme
