// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/step_metrics.h"

namespace trireme {

StepMetrics step_metrics(const Run& run, const StepReport& r, double seconds,
                         std::vector<std::pair<std::string, double>> more) {
  StepMetrics m;
  m.step = run.step;
  m.loss = r.loss;
  m.grad_norm = r.grad_norm;
  m.lr = r.lr;
  m.step_ms = seconds * 1e3;
  m.samples_per_s = static_cast<double>(r.samples) / seconds;
  m.tokens_per_s = run.text ? static_cast<double>(r.weight) / seconds : 0;
  m.more = std::move(more);
  if (r.loss_scale > 0) {
    m.more.emplace_back("loss_scale", r.loss_scale);
    m.more.emplace_back("skipped", r.skipped);
  }
  if (run.exchange && run.exchange->wire_bytes() >= 0)
    m.more.emplace_back("wire_bytes", static_cast<double>(run.exchange->wire_bytes()));
  if (run.noise) m.more.emplace_back("gradient_noise_scale", run.noise->noise().samples());
  return m;
}

}  // namespace trireme
