// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>

#include "trireme/base/check.h"
#include "trireme/layers/attention.h"
#include "trireme/layers/attention_blocks.h"
#include "trireme/layers/context_parallel/attend_across.h"

namespace trireme {

void detail::check_once() {
  check<UsageError>(!c10::GradMode::is_enabled(),
                    "context_attention: it can be differentiated once: leave out create_graph");
}

at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& starts, const ContextParallel& cp, int64_t time,
                             CallSite site) {
  constexpr const char* kWhat = "context_attention";
  detail::check_heads(q, k, v, kWhat);
  if (time == 0) time = starts.defined() ? starts.size(-1) : q.size(1) * cp.size();
  const int64_t own = cp.length(time);
  check<UsageError>(q.size(1) == own && k.size(1) == own,
                    "{}: rank {} of {} was given queries of {} positions and keys of {} of a row "
                    "of {}, and its part is {}",
                    kWhat, cp.rank(), cp.size(), q.size(1), k.size(1), time, own);
  detail::check_places(q.size(0), time, q.device(), {0, 0, starts}, kWhat);
  if (cp.size() == 1) return attention(q, k, v, {0, 0, starts}).out;
  const detail::Across across{cp, time, site};
  switch (cp.method()) {
    case ContextMethod::gather:
      return detail::gathered_attention(q, k, v, starts, across);
    case ContextMethod::all_to_all:
      return detail::all_to_all_attention(q, k, v, starts, across);
    case ContextMethod::ring:
      break;
  }
  return detail::ring_attention(q, k, v, starts, across);
}

}  // namespace trireme
