// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/backend.h"

namespace trireme::detail {

/// One rank's part of a running plan, over the sends and receives of a backend. Each round posts
/// its receives and sends; when all are complete it reduces, and the next round begins.
class PlanRun {
 public:
  /// flat: one-dimensional and contiguous, with the number of elements that the plan was made for.
  /// With avg the plan must be an all_reduce: it adds, and scales once at the end.
  PlanRun(plan::Plan plan, const at::Tensor& flat, ReduceOp op, int tag, CallSite site);

  /// Advances as far as possible without waiting and returns whether the result is complete. Throws
  /// as the backend does.
  bool advance(Backend& backend);
  void wait(Backend& backend, Duration timeout);
  const PlanTraffic& traffic() const { return traffic_; }

 private:
  void post_round(Backend& backend);
  void reduce_round();
  void finish(int ranks);
  at::Tensor view(const plan::Span& span) const;

  const plan::Plan plan_;
  const at::Tensor flat_;
  at::Tensor scratch_;
  const ReduceOp op_;
  const int tag_;
  const CallSite site_;
  PlanTraffic traffic_;
  size_t next_ = 0;          // step
  int round_ = -1;           // posted; -1: the next one is not
  std::vector<Token> open_;  // of this round, not complete yet
  bool done_ = false;
};

/// An all_reduce by a plan, with the preparation and conversion that a tensor needs before and
/// after.
class PlannedAllReduce {
 public:
  /// `tensor` must be dense and contiguous; every rank must pass the same arguments.
  PlannedAllReduce(Backend& backend, const at::Tensor& tensor, ReduceOp op, Algorithm algorithm,
                   const AlgorithmOptions& options, CallSite site);
  bool advance(Backend& backend);
  void wait(Backend& backend, Duration timeout);
  const PlanTraffic& traffic() const { return run_.traffic(); }

 private:
  void copy_back();
  const at::Tensor tensor_, work_;
  PlanRun run_;
};

}  // namespace trireme::detail
