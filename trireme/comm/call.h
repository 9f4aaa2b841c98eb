// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/base/call_site.h"
#include "trireme/comm/ops.h"

namespace trireme::detail {

/// One call of a Group, as passed to backends. It is a temporary of the caller: copy anything that
/// is needed after post() returns.
///   all_reduce, broadcast, reduce, send, recv: one tensor, which is input and output.
///   all_gather: output has size() times the elements of input; reduce_scatter: the reverse.
///   gather: output, on the root, has size() × the elements of input, and is undefined elsewhere.
///   scatter: input, on the root, has size() × the elements of output, and is undefined elsewhere.
///   all_to_all: counts in elements, one for each rank; they need not be equal.
///   barrier: no tensor.
struct Call {
  Collective op = Collective::none;
  /// The call that the program made, if it is carried out as `op`. Errors, the recorder and
  /// comparisons between ranks use this name. none: the same as `op`.
  Collective called = Collective::none;
  ReduceOp reduction = ReduceOp::sum;  // premul_sum arrives as sum
  int root = 0;                        // for a message the peer; for a recv also kAnySource
  int tag = 0;
  const at::Tensor* input = nullptr;
  const at::Tensor* output = nullptr;
  const std::vector<int64_t>* input_counts = nullptr;
  const std::vector<int64_t>* output_counts = nullptr;
  CallSite site{};

  const CollectiveFacts& facts() const { return facts_of(op); }
  Collective named() const { return called == Collective::none ? op : called; }
  /// The tensor whose elements the call counts and whose device it runs on; null if it has none.
  const at::Tensor* counted() const { return facts().counts_output ? output : input; }
};

}  // namespace trireme::detail
