// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/report/run_report.h"

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/config/sections/monitor.h"
#include "trireme/config/sections/step.h"
#include "trireme/monitor/memory.h"
#include "trireme/train/report/step_metrics.h"

namespace trireme {
namespace {

constexpr int64_t kStepsOfUse = 100;  // from one comparison of the ranks to the next

constexpr const char* kCategories[] = {"compute", "exposed_comm", "optimizer", "data"};

// A device's own memory, and that of the host, which the CPU computes with.
int64_t memory_of(const Trainer::Impl& trainer) {
  const at::Device device = trainer.first().device;
  if (const auto use = device.is_cpu() ? std::nullopt : memory_use(device)) return use->allocated;
  return memory_use(trainer.group.shared_bytes()).total();
}

// With several updates, adds each one's numbers under its name.
void add_updates(StepMetrics& m, const std::vector<UpdateDone>& done) {
  for (const UpdateDone& u : done) {
    const bool alone = done.size() == 1;
    for (const auto& [term, mean] : u.terms)
      m.more.emplace_back((alone ? "loss" : u.name) + "." + term, mean);
    if (alone) continue;
    m.more.emplace_back(u.name + ".loss", u.report.loss);
    m.more.emplace_back(u.name + ".grad_norm", u.report.grad_norm);
    m.more.emplace_back(u.name + ".lr", u.report.lr);
  }
}

}  // namespace

RunReport::RunReport(const Trainer::Impl& trainer, const TrainOptions& options)
    : trainer_(trainer),
      options_(options),
      speaks_(trainer.group.rank() == 0),
      use_(trainer.group, trainer.first().device) {
  if (!speaks_) return;
  const auto monitor = trainer.config.section<MonitorSection>();
  const Run& run = trainer.first();
  const RunStart start{trainer.group.size(), static_cast<uint64_t>(run.seed), trainer.config.hash(),
                       run.device.is_cpu() ? "" : device_text(run.device)};
  const auto mode = options.resume ? MetricsMode::resume : MetricsMode::fresh;
  if (!options.resume)
    if (const std::string old = set_metrics_aside(options.run_dir + "/metrics.jsonl"); !old.empty())
      log_info("a run was in {}: its metrics are in {} now", options.run_dir, old);
  metrics_.emplace_back(
      std::make_unique<MetricsFile>(options.run_dir + "/metrics.jsonl", start, mode));
  if (monitor.metrics)
    metrics_.emplace_back(std::make_unique<MetricsFile>(*monitor.metrics, start, mode));
  if (options.progress_fd < 0 || !monitor.progress) return;
  ProgressOptions p;
  p.fd = options.progress_fd;
  p.steps = run.steps;
  p.first = trainer.step;
  p.every = trainer.config.section<StepSection>().steps_per_print;
  progress_ = std::make_unique<Progress>(p);
}

void RunReport::step(double seconds, const StepTimes& times) {
  const auto use = trainer_.step % kStepsOfUse == 0 ? use_.lately() : UseOfRanks::Extremes();
  if (!speaks_) return;
  std::vector<std::pair<std::string, double>> parts;
  for (const char* category : kCategories) {
    parts.emplace_back(std::string(category) + "_ms", times.of(category) * 1e3);
    totals_[category] += times.of(category);
  }
  seconds_ += seconds;
  const StepReport last = trainer_.done.empty() ? StepReport() : trainer_.done.front().report;
  StepMetrics m = step_metrics(trainer_.first(), last, seconds, std::move(parts));
  m.step = trainer_.step;
  add_updates(m, trainer_.done);
  for (auto& file : metrics_) {
    file->step(m);
    if (!use.fields.empty()) file->event("use", trainer_.step, use.fields);
  }
  if (progress_)
    progress_->step({trainer_.step, last.loss, last.grad_norm, memory_of(trainer_), m.samples_per_s,
                     m.tokens_per_s});
}

void RunReport::note(const std::string& text) {
  if (!speaks_) return;
  if (progress_)
    progress_->note(text);
  else if (options_.say)
    options_.say(text);
}

void RunReport::held_out(const Evaluation& e) {
  if (!speaks_) return;
  for (auto& file : metrics_)
    file->event("eval", trainer_.step, {{"held_out_loss", e.loss}, {"accuracy", e.accuracy}});
  note(trainer_.first().text
           ? fmt::format("step {}: held-out loss {:.4f} nats a byte ({} tokens)", trainer_.step,
                         e.loss, with_commas(e.weight))
           : fmt::format("step {}: held-out loss {:.4f}, accuracy {:.2f} % ({} samples)",
                         trainer_.step, e.loss, 100 * e.accuracy, with_commas(e.weight)));
}

void RunReport::held_out(const std::vector<HeldOutSums::Sum>& sums) {
  if (!speaks_) return;
  std::vector<std::pair<std::string, double>> fields;
  std::string text;
  for (const auto& s : sums) {
    fields.emplace_back(s.name, s.sum / s.weight);
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", s.name, s.sum / s.weight);
  }
  for (auto& file : metrics_) file->event("eval", trainer_.step, fields);
  note(fmt::format("step {}: {}", trainer_.step, text));
}

void RunReport::done() {
  const auto use = use_.in_all();
  for (auto& file : metrics_) file->done(trainer_.step, use.fields);
  if (progress_) progress_->finish();
  if (speaks_ && seconds_ > 0)
    note(fmt::format(
        "time: compute {:.1f} %, exposed communication {:.1f} %, optimizer {:.1f} %, data {:.1f} %",
        100 * totals_["compute"] / seconds_, 100 * totals_["exposed_comm"] / seconds_,
        100 * totals_["optimizer"] / seconds_, 100 * totals_["data"] / seconds_));
  if (!use.sentence.empty()) note(use.sentence);
  const Run& run = trainer_.first();
  for (const auto& feature : run.features)
    if (const std::string line = feature->summary(run.batches.train); !line.empty()) note(line);
  progress_.reset();
}

std::string start_line(const Trainer::Impl& trainer) {
  const Run& run = trainer.first();
  int64_t parameters = 0;
  for (const auto& part : trainer.parts) parameters += part->run.parameters;
  const int ranks = trainer.group.size();
  std::string text =
      fmt::format("{} parameters on {} rank{}; {}; {} × {} × {} = {} samples a step",
                  with_commas(parameters), ranks, ranks == 1 ? "" : "s",
                  run.train_data ? run.train_data->describe() : "batches of the program's own",
                  run.batches.micro, run.batches.accumulation, run.batches.dp, run.batches.train);
  if (ranks > 1 && trainer.group.backend() != "local")
    text += "; collectives by " + trainer.group.backend();
  std::vector<std::string> parts = run.setup;
  parts.push_back(run.exchange->text());
  parts.push_back(run.plan->describe());
  for (const auto& feature : run.features) parts.push_back(feature->describe(run.step));
  for (const std::string& part : parts)
    if (!part.empty()) text += "; " + part;
  if (run.reproducible)
    text += fmt::format("; reproducible: {} gradient buffers a rank beside the buckets [{}]",
                        run.gradients->tree_buffers(static_cast<int>(run.batches.accumulation)),
                        run.identity);
  return text;
}

}  // namespace trireme
