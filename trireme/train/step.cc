// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/step.h"

#include "trireme/base/failpoint.h"
#include "trireme/base/trace.h"
#include "trireme/optim/clip.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/verdict.h"

namespace trireme {

// One step, top to bottom. Gradients are sums; the one division, by the global weight, is in
// grad_scale.
StepReport train_step(Run& run, int stop_asked) {
  failpoint("train.step");
  Batch batch = next_batch(run);  // this rank's micro-batches, with global sample ids
  run.gradients->open(
      static_cast<int>(batch.size()));          // contributions that each parameter will get
  LossSum mine = forward_backward(run, batch);  // a bucket launches on its last contribution
  run.gradients->close();                       // flush and wait: sums over ranks
  GlobalLoss loss =
      agree_on_loss(run, mine, stop_asked);  // over ranks; all raise alike if one is not finite
  const double grad_scale = 1.0 / static_cast<double>(loss.weight);  // sums → mean
  GradNorm norm = checked_norm(run, grad_scale);  // of the mean; names the parameter if not finite
  if (run.noise)                                  // for the record; changes nothing
    run.noise->end_step(grad_scale, norm.norm, static_cast<double>(run.batches.train));
  const double lr = run.schedule->lr_at(run.step);
  {
    Span span("optimizer", "step");
    run.optimizer->step(lr, grad_scale * norm.coefficient);  // clipping rides in the same factor
  }
  ++run.step;
  return {loss.mean(), norm.norm, lr, loss.weight, run.batches.train, loss.stop};
}

}  // namespace trireme
