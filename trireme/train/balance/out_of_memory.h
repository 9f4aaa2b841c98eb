// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/data/batch.h"

namespace trireme {

struct Run;

/// std::bad_alloc, and what LibTorch's allocators throw when there is no memory.
TRIREME_API bool is_out_of_memory(const std::exception& error);

/// What becomes of a rank's part of a step when memory runs out in it.
class TRIREME_API OutOfMemoryPolicy {
 public:
  OutOfMemoryPolicy() = default;
  virtual ~OutOfMemoryPolicy();
  OutOfMemoryPolicy(const OutOfMemoryPolicy&) = delete;

  /// For Gradients::open().
  virtual int contributions(const Batch& batch) const = 0;
  /// `compute` does the rank's part of a step; it notes in its second argument the micro-batch that
  /// it is at. run.gradients are open.
  using Compute = std::function<void(const Batch&, size_t& at)>;
  virtual void run(Run& run, const Batch& batch, const Compute& compute) = 0;
  /// Called where memory was short and all of the attempt is freed, and before each step from then
  /// on: the process may keep less. A policy that does not try again does not call it.
  virtual void when_short(std::function<void()> /*give_back*/) {}
};

/// ResourceError on every rank, with what can be done.
TRIREME_API std::shared_ptr<OutOfMemoryPolicy> end_on_out_of_memory();

}  // namespace trireme
