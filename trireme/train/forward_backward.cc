// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/forward_backward.h"

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/tensor/missing_operator.h"
#include "trireme/train/model_axes/model_group.h"

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

void forward_backward(Run& run, const Batch& batch, int stop_asked) {
  Span span("compute", "forward and backward");
  abort_group_on_error(run, [&] {
    run.out_of_memory->run(run, batch, [&](const Batch& part, size_t& at) {
      run.computation->train(run, part, stop_asked, at);
    });
  });
}

void abort_group_on_error(Run& run, const std::function<void()>& own_computation) {
  auto tell = [&](const std::string& what) {
    run.mesh.abort(
        fmt::format("rank {} failed in step {}: {}", run.world().rank(), run.step + 1, what));
  };
  try {
    naming_missing_operator(run.device, own_computation);
  } catch (const Error& e) {
    if (!is_fact_of_the_group(e)) tell(e.what());
    throw;
  } catch (const std::exception& e) {
    tell(brief(e));
    throw;
  }
}

void pass_on(Run& run, const Error& error) {
  const bool several = is_divided(run.mesh) || run.mesh.size("cp") > 1;
  if (is_fact_of_the_group(error) && several) run.mesh.abort(error.what());
}

}  // namespace trireme
