// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/forward_backward.h"

#include <ATen/core/Tensor.h>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/tensor/random.h"

namespace trireme {

Batch next_batch(Run& run) {
  Span span("data", "next batch");
  Batch batch = run.loader->next();
  return run.backoff ? run.backoff->cut(batch) : batch;
}

int contributions(const Run& run, const Batch& batch) {
  return run.backoff ? run.backoff->contributions(batch) : static_cast<int>(batch.size());
}

namespace {

// `i` is the micro-batch that it is at.
void compute(Run& run, const Batch& batch, int stop_asked, size_t& i) {
  LossSum total;
  for (i = 0; i < batch.size(); ++i) {
    const MicroBatch& micro = batch[i];
    RandomScope random({static_cast<uint64_t>(run.seed), run.step, micro.samples});
    run.gradients->begin_micro_batch(static_cast<int>(i));
    at::Tensor loss = run.model->loss_sum(run.compute->forward(micro.input), micro.target);
    if (micro.weight == 0) loss = loss * 0;  // a rank without samples takes part with zeros
    check<UsageError>(loss.requires_grad(),
                      "the loss does not depend on any parameter: nothing can be trained");
    total.sum += loss.item<double>();
    total.weight += micro.weight;
    run.gradients->tell(total, stop_asked);  // the last bucket may leave in this backward
    run.scaling->scale(loss).backward();
    if (run.noise)
      run.noise->micro_batch_done(run.gradients->parameters(), static_cast<double>(micro.weight));
  }
}

}  // namespace

void forward_backward(Run& run, const Batch& batch, int stop_asked) {
  Span span("compute", "forward and backward");
  told_to_all(run, [&] {
    auto part = [&](const Batch& b, size_t& at) { compute(run, b, stop_asked, at); };
    if (run.backoff) return run.backoff->run(run, batch, part);
    size_t at = 0;
    try {
      part(batch, at);
    } catch (const std::exception& e) {
      if (!is_out_of_memory(e)) throw;
      fail<ResourceError>(
          "rank {} ran out of memory at {} samples in step {}: lower "
          "train_micro_batch_size_per_gpu, set training.recompute_every, or let "
          "balance.mode=throughput halve micro-batches by itself: {}",
          run.group.rank(), batch.at(at).samples.size(), run.step + 1, brief(e));
    }
  });
}

void told_to_all(Run& run, const std::function<void()>& own_computation) {
  auto tell = [&](const std::string& what) {
    run.group.abort(
        fmt::format("rank {} failed in step {}: {}", run.group.rank(), run.step + 1, what));
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
