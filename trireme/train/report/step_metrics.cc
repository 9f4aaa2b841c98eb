// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/report/step_metrics.h"

#include <algorithm>

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
  if (const int64_t bytes = run.exchange->wire_bytes(); bytes >= 0)
    m.more.emplace_back("wire_bytes", static_cast<double>(bytes));
  if (const auto use = run.device.is_cpu() ? std::nullopt : memory_use(run.device)) {
    m.more.emplace_back("device_allocated_bytes", static_cast<double>(use->allocated));
    m.more.emplace_back("device_peak_bytes", static_cast<double>(use->peak_allocated));
    m.more.emplace_back("device_reserved_bytes", static_cast<double>(use->reserved));
  }
  for (const auto& feature : run.features)
    feature->metrics(run.step - 1, [&](const std::string& name, double value) {
      m.more.emplace_back(name, value);
    });
  return m;
}

std::vector<std::string> news_of(const Run& run) {
  std::vector<std::string> lines;
  auto add = [&](const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  };
  add(run.exchange->news());
  for (const auto& feature : run.features) add(feature->news());
  return lines;
}

}  // namespace trireme
