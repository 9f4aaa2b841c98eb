// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/layers/attention.h"
#include "trireme/layers/context_parallel/context_parallel.h"

namespace trireme {

at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& starts, const ContextParallel& cp, int64_t /*time*/,
                             CallSite /*site*/) {
  check<UsageError>(cp.size() == 1, "context_attention: of one rank so far");
  return attention(q, k, v, {0, 0, starts}).out;
}

}  // namespace trireme
