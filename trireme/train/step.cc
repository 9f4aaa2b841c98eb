// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/step.h"

#include "trireme/base/failpoint.h"
#include "trireme/base/trace.h"
#include "trireme/optim/clip.h"
#include "trireme/tensor/missing_operator.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/verdict.h"

namespace trireme {

// One step, from start to end. Gradients are sums; the only division, by the global weight, is in
// grad_scale.
StepReport train_step(Run& run, int stop_asked) {
  const CurrentDevice current(run.device);
  run.own_time->computing();
  return train_on(run, next_batch(run), stop_asked);  // micro-batches, with global sample ids
}

StepReport train_on(Run& run, const Batch& batch, int stop_asked) try {
  failpoint("train.step");
  run.own_time->computing();
  run.gradients->open(contributions(run, batch));  // how many contributions each gradient gets
  forward_backward(run, batch, stop_asked);        // a bucket launches on its last contribution
  return finish_step(run);
} catch (const Error& error) {
  pass_on(run, error);
  throw;
}

StepReport finish_step(Run& run) {
  run.own_time->waiting();
  // A codec keeps what it does not send, so clipping must come first: otherwise the clipped part
  // would return later as a burst, which clipping would take for an explosion.
  const bool own = run.clip_norm > 0 && run.exchange->clips_own();
  if (own) run.gradients->clip_own(run.clip_norm, run.scaling->inverse());
  run.gradients->close();  // flush and wait: sums over ranks
  run.own_time->computing();
  // Sent along with the gradients; all ranks throw if one is not finite.
  const StepFacts facts = facts_of_step(run);
  GlobalLoss loss = global_loss(run, facts);
  run.in_update = true;  // until the caller has ended the step
  for (const auto& feature : run.features) feature->closed(run.step);
  const double grad_scale = run.scaling->inverse() / loss.gradient_weight;  // scaled sums → mean
  // The verdict is the same on all ranks; its norm is that of the mean.
  Verdict verdict = judge(run, facts, loss, grad_scale, own ? 0 : run.clip_norm);
  const int64_t samples = run.samples_of_step();
  const double lr = run.lr->lr_at(run.step - run.scaling->skipped()) * run.lr_factor();
  if (verdict.finite()) {
    Span span("optimizer", "step");
    if (run.exchange->steps_on_this_rank())
      naming_missing_operator(run.device, [&] {
        run.optimizer->step(lr,
                            grad_scale * verdict.norm.coefficient);  // clipping is in the factor
      });
    run.own_time->waiting();
    run.gradients->publish();              // ZeRO: what this rank owns
    run.exchange->after_optimizer_step();  // local steps: one model again, if due
    run.own_time->computing();
  }
  const double scale = run.scaling->loss_scale();
  run.scaling->update(verdict.gradients);  // a step that overflowed is skipped, or ends the run
  if (const double now = run.scaling->loss_scale(); scale > 0 && now != scale)
    run.exchange->rescaled(now / scale);  // the residual is in units of the gradients
  run.own_time->waiting();
  for (const auto& feature : run.features)
    feature->stepped(
        {verdict.finite(), grad_scale, verdict.norm.norm, static_cast<double>(samples)});
  ++run.step;
  return {loss.mean(), verdict.norm.norm, lr,    loss.weight,
          samples,     loss.stop,         scale, !verdict.finite()};
}

}  // namespace trireme
