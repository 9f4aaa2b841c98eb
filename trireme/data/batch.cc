// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/batch.h"

#include "trireme/base/check.h"
#include "trireme/data/balance_plan.h"

namespace trireme {

const at::Tensor& MicroBatch::tensor(const std::string& name) const {
  if (name == "input" && input.defined()) return input;
  if (name == "target" && target.defined()) return target;
  std::string names;
  for (const auto& [other, t] : more) {
    if (other == name) return t;
    names += ", " + other;
  }
  fail<UsageError>("a micro-batch has no tensor '{}': it has {}{}{}", name,
                   input.defined() ? "input" : "no input", target.defined() ? ", target" : "",
                   names);
}

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
    auto rows_of = [&](const at::Tensor& t) { return t.defined() ? t.narrow(0, at, count) : t; };
    MicroBatch part{rows_of(micro.input), rows_of(micro.target), {}, 0, {}, {}};
    for (const auto& [name, t] : micro.more) part.more.emplace_back(name, rows_of(t));
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
