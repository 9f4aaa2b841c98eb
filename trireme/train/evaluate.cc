// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/trace.h"
#include "trireme/tensor/host_scalars.h"

namespace trireme {

void for_held_out(Run& run, const std::function<void(const MicroBatch& micro, bool counts)>& look) {
  check<UsageError>(run.held_out != nullptr, "there is no held-out data to evaluate on");
  Span span("evaluate", "held-out data");
  at::NoGradGuard no_grad;
  const int64_t size = run.held_out->size(), b = run.batches.micro;
  int64_t batches = (size + b - 1) / b;
  if (run.text && run.eval_batches > 0) batches = std::min(batches, run.eval_batches);
  // The samples are spread over all of the data, and are the same for any number of ranks.
  const int64_t stride = std::max<int64_t>(1, size / b / batches);
  // A forward may be collective (ZeRO-3), so every rank runs equally many. Those beyond the last
  // batch do not count.
  const Group dp = run.data_parallel();
  const int64_t ranks = dp.size(), rounds = (batches + ranks - 1) / ranks;
  for (int64_t round = 0; round < rounds; ++round) {
    mark_alive();
    const bool counts = round * ranks + dp.rank() < batches;
    if (!counts && !run.collective_forward) break;
    const int64_t i = counts ? round * ranks + dp.rank() : 0;
    std::vector<int64_t> ids;
    for (int64_t k = i * stride * b; k < std::min(size, i * stride * b + b); ++k) ids.push_back(k);
    look(on_device(run.held_out->get(ids), run.device), counts);
  }
}

Evaluation evaluate(Run& run) {
  const CurrentDevice current(run.device);
  run.model->eval();
  HostScalars losses, right;
  at::Tensor sums = at::empty({3}, at::kDouble);
  auto* s = static_cast<double*>(sums.data_ptr());
  std::fill_n(s, 3, 0.0);
  for_held_out(run, [&](const MicroBatch& micro, bool counts) {
    const auto outputs = run.computation->outputs(run, micro);
    if (!counts || !outputs) return;
    const at::Tensor& output = outputs->at(0);
    losses.add(run.model->loss_sum(output, micro.target));
    right.add(run.model->count_right(output, micro.target));
    if (run.tells_weight()) s[2] += static_cast<double>(micro.weight);
  });
  const auto total = [](HostScalars& all) {
    return std::accumulate(all.read().begin(), all.read().end(), 0.0);
  };
  s[0] = total(losses);
  s[1] = total(right);
  run.mesh.group({"pp", "dp_replicate", "dp_shard", "cp"}).all_reduce(sums).wait();
  run.model->train();
  return {s[0] / s[2], s[1] / s[2], static_cast<int64_t>(s[2])};
}

}  // namespace trireme
