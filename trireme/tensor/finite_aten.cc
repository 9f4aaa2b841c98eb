// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/finite_aten.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "trireme/tensor/numbers_of.h"

namespace trireme {

bool all_finite_aten(const at::Tensor& t) { return at::isfinite(t).all().item<bool>(); }

int64_t first_not_finite_aten(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return -1;
  std::vector<at::Tensor> flags;
  for (const at::Tensor& t : tensors) {
    const at::Tensor flag = at::isfinite(t.detach()).all();
    flags.push_back(flags.empty() ? flag : flag.to(flags[0].device()));
  }
  const std::vector<bool> each = numbers_of<bool>(at::stack(flags));
  const auto bad = std::find(each.begin(), each.end(), false);
  return bad == each.end() ? -1 : bad - each.begin();
}

}  // namespace trireme
