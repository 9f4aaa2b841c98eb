// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/documents.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cummax.h>

#include <tuple>

#include "trireme/base/check.h"

namespace trireme {

at::Tensor document_starts(const at::Tensor& ids, int64_t end) {
  check<UsageError>(ids.dim() == 2 && ids.scalar_type() == at::kLong,
                    "document_starts: the tokens must be [batch, time] in int64");
  if (ids.numel() == 0) return ids;
  // The place behind each end, seen from that place on.
  const int64_t time = ids.size(1);
  const at::Tensor behind = ids.eq(end).mul(at::arange(1, time + 1, ids.options()));
  const at::Tensor begins = at::constant_pad_nd(behind.narrow(1, 0, time - 1), {1, 0});
  return std::get<0>(at::cummax(begins, 1));
}

at::Tensor positions_in_documents(const at::Tensor& starts) {
  return at::arange(starts.size(1), starts.options()).sub(starts);
}

}  // namespace trireme
