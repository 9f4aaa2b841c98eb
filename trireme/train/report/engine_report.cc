// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/report/engine_report.h"

#include "trireme/base/log.h"
#include "trireme/config/sections/monitor.h"
#include "trireme/config/sections/step.h"
#include "trireme/train/gradients/gradient_noise.h"
#include "trireme/train/report/step_metrics.h"

namespace trireme {

EngineReport::EngineReport(const Config& c, const Run& run)
    : every_(c.section<StepSection>().steps_per_print),
      metrics_path_(c.section<MonitorSection>().metrics.value_or("")),
      start_{run.world().size(), static_cast<uint64_t>(run.seed), c.hash(),
             run.device.is_cpu() ? "" : device_text(run.device)} {
  if (run.world().rank() != 0) return;
  const char* key = "steps_per_print";
  if (!c.is_default(key) && !log_enabled(LogLevel::info))
    log_warn(
        "{}: steps_per_print is {}, and lines of level info are switched off: "
        "set_log_level(LogLevel::info), or TRIREME_LOG_LEVEL=info in the environment, shows them",
        c.origin(key), every_);
}

void EngineReport::print(const Run& run, const StepReport& r) const {
  std::string text = fmt::format("step {}, skipped {}, lr {:g}, loss {:.6g}, grad norm {:.4g}",
                                 run.step, run.scaling->skipped(), r.lr, r.loss, r.grad_norm);
  if (r.loss_scale > 0) text += fmt::format(", loss scale {:g}", r.loss_scale);
  if (const auto* noise = run.find<GradientNoise>())
    text += fmt::format(", gradient noise scale {:.4g}", noise->noise().samples());
  log_info("{}", text);
}

void EngineReport::step(const Run& run, const StepReport& r) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  const std::vector<std::string> news = news_of(run);
  if (run.world().rank() != 0) return;
  for (const std::string& text : news) log_info("{}", text);
  if (run.step % every_ == 0) print(run, r);
  if (metrics_path_.empty()) return;
  if (!metrics_) metrics_ = std::make_unique<MetricsFile>(metrics_path_, start_, mode_);
  metrics_->step(step_metrics(run, r, seconds));
}

}  // namespace trireme
