// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/grad/reducer.h"
#include "trireme/monitor/memory.h"
#include "trireme/monitor/metrics.h"
#include "trireme/monitor/progress.h"
#include "trireme/monitor/span_sink.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/run_folder_guard.h"
#include "trireme/train/saving.h"
#include "trireme/train/step.h"
#include "trireme/train/step_metrics.h"
#include "trireme/train/unused_gpu.h"

namespace trireme {
namespace {

// Restores what `path` holds and refuses what would silently train something else.
void resume_from(Run& run, const std::string& path) {
  const auto seed = run.seed;
  const auto train = run.batches.train;
  const std::string identity = run.identity, data = run.data_identity;
  const CheckpointInfo info = load_run(run, path);
  check<UsageError>(run.seed == seed,
                    "{} was trained with training.seed {}, this run asks for {}: the order of the "
                    "data would change",
                    info.folder, run.seed, seed);
  check<UsageError>(run.batches.train == train,
                    "{} was trained with {} samples a step, this run asks for {}: its place in the "
                    "data would be another. Keep "
                    "train_batch_size, or start a new run",
                    info.folder, run.batches.train, train);
  check<UsageError>(run.data_identity == data, "{} was trained on other data ({}; now {})",
                    info.folder, run.data_identity, data);
  check<UsageError>(!run.reproducible || run.identity == identity,
                    "{} was trained as [{}], this process is [{}]: the bits would differ. Use the "
                    "same machine settings, or turn "
                    "training.reproducible off",
                    info.folder, run.identity, identity);
  run.identity = identity;
}

/// What rank 0 shows and writes about a run; nothing on the other ranks.
class Report {
 public:
  Report(const Config& config, const Run& run, const TrainOptions& options)
      : options_(options), run_(run) {
    if (run.world().rank() != 0) return;
    const RunStart start{run.world().size(), static_cast<uint64_t>(run.seed), config.hash()};
    const auto mode = options.resume ? MetricsMode::resume : MetricsMode::fresh;
    metrics_.emplace_back(
        std::make_unique<MetricsFile>(options.run_dir + "/metrics.jsonl", start, mode));
    if (config.has("monitor.metrics"))
      metrics_.emplace_back(
          std::make_unique<MetricsFile>(config.get_string("monitor.metrics"), start, mode));
    if (options.progress_fd >= 0 && config.get_bool("monitor.progress")) {
      ProgressOptions p;
      p.fd = options.progress_fd;
      p.steps = run.steps;
      p.first = run.step;
      p.every = config.get_int("steps_per_print");
      progress_ = std::make_unique<Progress>(p);
    }
  }

  void step(const StepReport& r, double seconds, const StepTimes& times) {
    if (run_.world().rank() != 0) return;
    std::vector<std::pair<std::string, double>> parts;
    for (const char* category : {"compute", "exposed_comm", "optimizer", "data"})
      parts.emplace_back(std::string(category) + "_ms", times.of(category) * 1e3);
    StepMetrics m = step_metrics(run_, r, seconds, std::move(parts));
    for (auto& file : metrics_) file->step(m);
    totals_[0] += times.of("compute"), totals_[1] += times.of("exposed_comm"),
        totals_[2] += times.of("optimizer"), totals_[3] += times.of("data"), totals_[4] += seconds;
    if (progress_)
      progress_->step({run_.step, r.loss, r.grad_norm,
                       memory_use(run_.world().shared_bytes()).total(), m.samples_per_s,
                       m.tokens_per_s});
  }

  void note(const std::string& text) {
    if (run_.world().rank() != 0) return;
    if (progress_)
      progress_->note(text);
    else if (options_.say)
      options_.say(text);
  }

  void held_out(const Evaluation& e) {
    if (run_.world().rank() != 0) return;
    for (auto& file : metrics_)
      file->event("eval", run_.step, {{"held_out_loss", e.loss}, {"accuracy", e.accuracy}});
    note(run_.text ? fmt::format("step {}: held-out loss {:.4f} nats a byte ({} tokens)", run_.step,
                                 e.loss, with_commas(e.weight))
                   : fmt::format("step {}: held-out loss {:.4f}, accuracy {:.2f} % ({} samples)",
                                 run_.step, e.loss, 100 * e.accuracy, with_commas(e.weight)));
  }

  void done(int64_t steps) {
    for (auto& file : metrics_) file->done(steps);
    if (progress_) progress_->finish();
    if (run_.world().rank() == 0 && totals_[4] > 0)
      note(
          fmt::format("time: compute {:.1f} %, exposed communication {:.1f} %, optimizer {:.1f} %, "
                      "data {:.1f} %",
                      100 * totals_[0] / totals_[4], 100 * totals_[1] / totals_[4],
                      100 * totals_[2] / totals_[4], 100 * totals_[3] / totals_[4]));
    for (const auto& feature : run_.features)
      if (const std::string line = feature->summary(run_.batches.train); !line.empty()) note(line);
    progress_.reset();
  }

 private:
  const TrainOptions& options_;
  const Run& run_;
  std::vector<std::unique_ptr<MetricsFile>> metrics_;
  std::unique_ptr<Progress> progress_;
  double totals_[5] = {};
};

// A rank listens to its own thread: other ranks of the process may outlive it when it fails. A
// listener that the program installed stays.
class TraceScope {
 public:
  explicit TraceScope(SpanSink& sink) : ours_(trace_sink() == nullptr) {
    if (ours_) set_thread_trace_sink(&sink);
  }
  ~TraceScope() {
    if (ours_) set_thread_trace_sink(nullptr);
  }
  TraceScope(const TraceScope&) = delete;

 private:
  bool ours_;
};

std::string start_line(const Run& run) {
  int64_t parameters = 0;
  for (const auto& [name, p] : run.gradients->parameters()) parameters += p.numel();
  std::string text = fmt::format(
      "{} parameters on {} rank{}; {}; {} × {} × {} = {} samples a step", with_commas(parameters),
      run.world().size(), run.world().size() == 1 ? "" : "s", run.train_data->describe(),
      run.batches.micro, run.batches.accumulation, run.batches.dp, run.batches.train);
  if (run.world().size() > 1 && run.world().backend() != "local")
    text += "; collectives by " + run.world().backend();
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

}  // namespace

TrainResult train(const Config& config, Group group, const TrainOptions& options) {
  if (group.rank() == 0) {
    std::error_code error;
    std::filesystem::create_directories(options.run_dir, error);
    check<ResourceError>(!error, "cannot make the run folder {}: {}", options.run_dir,
                         error.message());
  }
  failpoint("train.build");
  Run run = build_run(config, group);
  run.out_of_memory->when_short(options.memory_short);
  if (options.resume) resume_from(run, *options.resume);
  check<UsageError>(run.step <= run.steps,
                    "the checkpoint has {} steps behind it; training.steps is {}: raise it",
                    run.step, run.steps);
  if (options.resume && run.step == run.steps) {
    if (options.say && group.rank() == 0)
      options.say(fmt::format(
          "the run is finished: all {} steps are done. --steps N with a larger N trains on",
          run.steps));
    group.barrier();
    TrainResult finished;
    finished.steps = run.step;
    return finished;
  }
  start_data(run, config);

  SpanSink spans;
  TraceScope tracing(spans);
  Report report(config, run, options);
  if (group.rank() == 0 && !options.config_json.empty())
    write_file_atomic(options.run_dir + "/config.json", options.config_json);
  if (options.built) options.built();
  RunFolderGuard watch(group.rank() == 0 ? options.run_dir : "");
  if (options.say && group.rank() == 0) {
    options.say(start_line(run));
    if (has_gpu()) options.say(kUnusedGpu);
  }
  if (options.resume && options.say && group.rank() == 0)
    options.say(fmt::format("going on after step {}", run.step));

  TrainResult result;
  const int64_t save_every = config.get_int("checkpoint.every"),
                eval_every = config.get_int("training.eval_every");
  const std::string folder =
      config.has("checkpoint.folder") ? config.get_string("checkpoint.folder") : options.run_dir;
  int64_t saved_at = -1;
  auto save = [&] {
    if (saved_at == run.step) return;
    watch.check_now();
    result.checkpoint = save_run(run, folder, static_cast<int>(config.get_int("checkpoint.keep")));
    saved_at = run.step;
    report.note(fmt::format("saved {}", result.checkpoint));
  };
  auto held_out = [&] {
    const GradientSyncStrategy::AveragedWeightsGuard one(*run.exchange);
    const Evaluation e = evaluate(run);
    result.held_out_loss = e.loss;
    report.held_out(e);
  };

  spans.take();
  int64_t evaluated_at = -1;
  auto begin = Clock::now();
  while (run.step < run.steps && !result.stopped) {
    const StepReport r = train_step(run, options.stop_asked ? options.stop_asked() : 0);
    result.loss = r.loss;
    const auto now = Clock::now();
    watch.check();
    report.step(r, std::chrono::duration<double>(now - begin).count(), spans.take());
    for (const std::string& line : news_of(run)) report.note(line);
    result.stopped = run.step < run.steps ? r.stop : 0;
    if (result.stopped || (save_every > 0 && run.step % save_every == 0)) save();
    if (!result.stopped && run.held_out && eval_every > 0 && run.step % eval_every == 0) {
      held_out();
      evaluated_at = run.step;
      spans.take();
    }
    begin = Clock::now();
  }
  if (!result.stopped) {
    if (run.held_out && evaluated_at != run.step) held_out();
    if (config.get_bool("checkpoint.at_end")) save();
  }
  report.done(run.step);
  group.barrier();  // the last checkpoint is there when any rank returns
  result.steps = run.step;
  return result;
}

}  // namespace trireme
