// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/power_sgd_plan.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/grad/compression/power_sgd_hook.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {

std::vector<PowerSgdShape> plan_power_sgd(const NamedTensors& all, int64_t rank,
                                          double min_compression_rate) {
  const NamedTensors parameters = unique_tensors(all);
  check<UsageError>(rank >= 1 && rank <= 64, "PowerSGD: a rank of {}: choose 1 to 64", rank);
  check<UsageError>(min_compression_rate > 0, "PowerSGD: a least compression of {}: it is above 0",
                    min_compression_rate);
  std::vector<PowerSgdShape> plan;
  int64_t roomiest = -1, side = 0;
  const auto refuse = [&](size_t p, int64_t fits) {
    fail<UsageError>(
        "PowerSGD: parameter '{}' has shape [{}], whose rank is at most {}: a rank of {} is above "
        "it. Choose {} or less",
        parameters[p].first, fmt::join(parameters[p].second.sizes().vec(), ", "), fits, rank, fits);
  };
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& t = parameters[p].second;
    PowerSgdShape shape;
    if (t.dim() >= 2 && t.numel() > 0) {
      shape.rows = t.size(0);
      shape.cols = t.numel() / t.size(0);
      const int64_t smaller = std::min(shape.rows, shape.cols);
      shape.compressed = power_sgd_compresses(shape.rows, shape.cols, rank, min_compression_rate);
      if (shape.compressed && rank > smaller) refuse(p, smaller);
      if (smaller > side) {
        roomiest = static_cast<int64_t>(p);
        side = smaller;
      }
    }
    plan.push_back(shape);
  }
  if (roomiest >= 0 && rank > side) refuse(static_cast<size_t>(roomiest), side);
  return plan;
}

}  // namespace trireme
