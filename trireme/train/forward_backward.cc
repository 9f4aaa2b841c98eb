// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/forward_backward.h"

#include <ATen/core/Tensor.h>

#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/tensor/host_scalars.h"
#include "trireme/tensor/random/random.h"

namespace trireme {

Batch next_batch(Run& run) {
  Span span("data", "next batch");
  const int64_t step = run.loader->step();
  Batch batch = run.loader->next();
  if (run.device_batches) batch = run.device_batches->arrived(step, std::move(batch));
  for (const auto& feature : run.features) batch = feature->before_backward(std::move(batch));
  return batch;
}

int contributions(const Run& run, const Batch& batch) {
  return run.out_of_memory->contributions(batch);
}

namespace {

// `i` is set to the current micro-batch.
void compute(Run& run, const Batch& batch, int stop_asked, size_t& i) {
  LossSum total;
  HostScalars losses;
  for (i = 0; i < batch.size(); ++i) {
    const MicroBatch& micro = batch[i];
    RandomScope random({static_cast<uint64_t>(run.seed), run.step, micro.samples});
    run.gradients->begin_micro_batch(static_cast<int>(i));
    at::Tensor loss = run.loss(run, micro);
    if (micro.weight == 0) loss = loss * 0;  // a rank without samples takes part with zeros
    check<UsageError>(loss.requires_grad(),
                      "the loss does not depend on any parameter: nothing can be trained");
    losses.add(loss);
    total.weight += micro.weight;
    // With the last bucket, which may be sent in this backward. A device is waited for once a step.
    if (i + 1 == batch.size()) {
      const auto& all = losses.read();
      total.sum = std::accumulate(all.begin(), all.end(), 0.0);
    }
    run.gradients->tell(total, stop_asked);
    run.scaling->scale(loss).backward();
    for (const auto& feature : run.features)
      feature->micro_batch_done(run.gradients->parameters(), static_cast<double>(micro.weight));
  }
}

}  // namespace

void forward_backward(Run& run, const Batch& batch, int stop_asked) {
  Span span("compute", "forward and backward");
  abort_group_on_error(run, [&] {
    run.out_of_memory->run(
        run, batch, [&](const Batch& part, size_t& at) { compute(run, part, stop_asked, at); });
  });
}

void abort_group_on_error(Run& run, const std::function<void()>& own_computation) {
  auto tell = [&](const std::string& what) {
    run.mesh.abort(
        fmt::format("rank {} failed in step {}: {}", run.world().rank(), run.step + 1, what));
  };
  try {
    own_computation();
  } catch (const Error& e) {
    if (!is_fact_of_the_group(e)) tell(e.what());
    throw;
  } catch (const std::exception& e) {
    tell(brief(e));
    throw;
  }
}

}  // namespace trireme
