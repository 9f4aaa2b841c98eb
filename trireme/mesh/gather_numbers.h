// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/empty.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/reachable.h"

namespace trireme::detail {

/// One number of each rank; every rank of the group calls it.
inline std::vector<int64_t> gather_numbers(Group& g, int64_t mine, CallSite site) {
  const auto options =
      at::TensorOptions(at::kLong).device(reachable_device(g, Collective::all_gather, at::kLong));
  at::Tensor in = at::empty({1}, options), out = at::empty({g.size()}, options);
  in.fill_(mine);
  g.all_gather_into_tensor(out, in, site).wait();
  const at::Tensor host = out.cpu();
  const auto* p = static_cast<const int64_t*>(host.data_ptr());
  return {p, p + host.numel()};
}

}  // namespace trireme::detail
