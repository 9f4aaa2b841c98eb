// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/averaging/averaging_checks.h"

#include <ATen/ops/empty.h>

#include "trireme/base/check.h"
#include "trireme/comm/reachable.h"
#include "trireme/tensor/finite.h"
#include "trireme/tensor/numbers_of.h"
#include "trireme/tensor/tensor_overlaps.h"

namespace trireme {

void check_averaged(const NamedTensors& parameters) {
  check<UsageError>(!parameters.empty(), "averaging of weights: there are no parameters");
  const at::ScalarType dtype = parameters.front().second.scalar_type();
  for (const auto& [name, p] : parameters) {
    check<UsageError>(p.scalar_type() == at::kFloat || p.scalar_type() == at::kDouble,
                      "averaging of weights: parameter '{}' is {}; half-precision weights round "
                      "away what is averaged: keep float32 weights (torch_autocast computes in "
                      "bfloat16 on those)",
                      name, c10::toString(p.scalar_type()));
    check<UsageError>(p.scalar_type() == dtype && p.is_contiguous(),
                      "averaging of weights: parameter '{}' is not contiguous, or of another dtype "
                      "than '{}'",
                      name, parameters.front().first);
  }
  refuse_overlaps("averaging of weights", parameters);
}

void refuse_not_finite(Group& group, const NamedTensors& tensors) {
  std::vector<at::Tensor> values;
  for (const auto& [name, t] : tensors) values.push_back(t.detach());
  const auto first = static_cast<double>(first_not_finite(values) + 1);
  const auto options =
      at::TensorOptions(at::kDouble)
          .device(detail::reachable_device(group, Collective::all_gather, at::kDouble));
  at::Tensor mine = at::empty({1}, options).fill_(first), all = at::empty({group.size()}, options);
  group.all_gather_into_tensor(all, mine).wait();
  const std::vector<double> of = numbers_of<double>(all);
  for (size_t r = 0; r < of.size(); ++r) {
    if (of[r] == 0) continue;
    const std::string& name = tensors[static_cast<size_t>(of[r]) - 1].first;
    throw NumericError(
        fmt::format("'{}' of rank {} is not finite as weights are to be averaged: lower the "
                    "learning rate, clip gradients, or average more often",
                    name, group.world_ranks()[r]),
        {group.world_ranks()[r], -1, "averaging", -1});
  }
}

}  // namespace trireme
