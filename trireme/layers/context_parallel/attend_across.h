// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/call_site.h"
#include "trireme/layers/context_parallel/context_parallel.h"

// The three ways of context_attention() for more than one rank. q, k and v are this rank's
// positions, checked; starts: those of whole rows, or undefined.
namespace trireme::detail {

struct Across {
  ContextParallel cp;
  int64_t time = 0;  // positions of all ranks
  CallSite site;
};

at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& starts, const Across& across);
at::Tensor gathered_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& starts, const Across& across);
at::Tensor all_to_all_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& starts, const Across& across);

/// Throws UsageError in a backward that is to be differentiated again.
void check_once();

}  // namespace trireme::detail
