// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/data/batch.h"

namespace trireme {

struct Run;

/// Whether an error is std::bad_alloc or an out-of-memory error of LibTorch's allocators.
TRIREME_API bool is_out_of_memory(const std::exception& error);

/// Decides what happens when memory runs out in a rank's part of a step.
class TRIREME_API OutOfMemoryPolicy {
 public:
  OutOfMemoryPolicy() = default;
  virtual ~OutOfMemoryPolicy();
  OutOfMemoryPolicy(const OutOfMemoryPolicy&) = delete;

  /// Returns the number of contributions for Gradients::open().
  virtual int contributions(const Batch& batch) const = 0;
  /// Runs `compute`, which does the rank's part of a step and stores the index of the current
  /// micro-batch in its second argument. run.gradients must be open.
  using Compute = std::function<void(const Batch&, size_t& at)>;
  virtual void run(Run& run, const Batch& batch, const Compute& compute) = 0;
  /// Sets a function that returns free memory to the system. It is called after a failed attempt
  /// has been freed, and before each later step. A policy that does not retry never calls it.
  virtual void when_short(std::function<void()> /*give_back*/) {}
};

/// Returns a policy that throws ResourceError on every rank, with advice.
TRIREME_API std::shared_ptr<OutOfMemoryPolicy> end_on_out_of_memory();

}  // namespace trireme
