// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/batch.h"

#include "trireme/base/check.h"
#include "trireme/data/balance_plan.h"

namespace trireme {

Batch cut_micro_batch(const MicroBatch& micro, int64_t most) {
  const auto rows = static_cast<int64_t>(micro.samples.size());
  if (rows <= most) return {micro};
  const bool equal = micro.row_weights.empty();
  check<UsageError>(
      equal ? micro.weight % rows == 0 : micro.row_weights.size() == micro.samples.size(),
      "a micro-batch of {} samples that weigh {} together cannot be cut: its "
      "row_weights are missing",
      rows, micro.weight);
  Batch parts;
  int64_t at = 0;
  for (const int64_t count : cut_share(rows, most)) {
    MicroBatch part{micro.input.narrow(0, at, count), micro.target.narrow(0, at, count), {}, 0, {}};
    part.samples.assign(micro.samples.begin() + at, micro.samples.begin() + at + count);
    if (equal) {
      part.weight = micro.weight / rows * count;
    } else {
      part.row_weights.assign(micro.row_weights.begin() + at,
                              micro.row_weights.begin() + at + count);
      for (const int64_t w : part.row_weights) part.weight += w;
    }
    parts.push_back(std::move(part));
    at += count;
  }
  return parts;
}

}  // namespace trireme
