// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/trainer.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/training.h"
#include "trireme/train/build/half_products_setup.h"
#include "trireme/train/data_place.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/in_place/in_place.h"
#include "trireme/train/program/make_trainer.h"
#include "trireme/train/report/run_report.h"
#include "trireme/train/report/step_metrics.h"
#include "trireme/train/run_saves.h"
#include "trireme/train/setup/run_folder_guard.h"

namespace trireme {
namespace {

// Restores what the step holds and refuses what would silently train something else.
CheckpointInfo resume_from(Trainer::Impl& trainer, const TrainOptions& options,
                           const DataPlace& place) {
  Run& run = trainer.first();
  const auto seed = run.seed;
  const std::string built = run.identity, data = run.data_identity;
  const CheckpointInfo info = trainer.load(*options.resume, options.held);
  check<UsageError>(info.folder == place.folder,
                    "{} was replaced by {} while it was being read: another run saves there",
                    place.folder, info.folder);
  check<UsageError>(run.seed == seed,
                    "{} was trained with training.seed {}, this run asks for {}: the order of the "
                    "data would change",
                    info.folder, run.seed, seed);
  check<UsageError>(place.origin || !run.train_data || place.samples_per_step == run.batches.train,
                    "{} was trained with {} samples a step, this run asks for {}, and an old "
                    "version that saved it did not write down its place in the data. Keep "
                    "train_batch_size, or start a new run",
                    info.folder, place.samples_per_step, run.batches.train);
  check<UsageError>(run.data_identity == data, "{} was trained on other data ({}; now {})",
                    info.folder, run.data_identity, data);
  check<UsageError>(
      place.contents.empty() || run.data_contents.empty() || place.contents == run.data_contents,
      "{} was trained on other data: the files have the names and lengths that they "
      "had, and their contents differ. Bring the old files back, or start a new run "
      "with these weights (checkpoint.init)",
      info.folder);
  const std::string saved = std::exchange(run.identity, built);
  follow_half_products(run, saved);
  check<UsageError>(!run.reproducible || run.identity == saved,
                    "{} was trained as [{}], this process is [{}]: the bits would differ. Use the "
                    "same machine settings, or turn "
                    "training.reproducible off",
                    info.folder, saved, run.identity);
  return info;
}

// A rank traces only its own thread, because other ranks of the process may outlive it if it fails.
// A listener that the program installed is kept.
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

/// The models that a configuration can name: batches and losses are the run's own.
class BuiltIn final : public Program {
 public:
  Pieces make(const Config&) override { return {}; }
  LossTerms loss(Network&, const MicroBatch&) override { return {}; }
};

/// The launcher watches this rank as long as it trains.
struct ProgressScope {
  ProgressScope() { mark_progress(Activity::build); }
  ~ProgressScope() { mark_progress(Activity::done); }
  ProgressScope(const ProgressScope&) = delete;
};

/// Runs steps, and saves and evaluates between them.
class Loop {
 public:
  Loop(Trainer::Impl& trainer, const TrainOptions& options, RunReport& report,
       RunFolderGuard& watch)
      : t_(trainer),
        options_(options),
        report_(report),
        watch_(watch),
        checkpoint_(t_.config.section<CheckpointSection>()),
        saves_(
            trainer, checkpoint_, options.run_dir, report, watch, [this] { return now(); },
            options.held != nullptr || options.in_place),
        eval_every_(t_.config.section<TrainingSection>().eval_every),
        eval_epochs_(t_.config.section<TrainingSection>().eval_epochs),
        in_place_(options.in_place) {}

  TrainResult run(SpanSink& spans) {
    try {
      return take_steps(spans);
    } catch (const Error& e) {
      if (ends_group(e)) saves_.ranks_are_lost();
      throw;
    }
  }

 private:
  TrainResult take_steps(SpanSink& spans) {
    const int64_t steps = t_.first().steps;
    if (in_place_ && in_place_->saves_are_due()) between_steps({});
    double begin = now();
    while (t_.step < steps && !result_.stopped) {
      if (in_place_) in_place_->begin_step(t_);
      const int stop = options_.stop_asked ? options_.stop_asked() : 0;
      mark_progress(Activity::step, t_.step + 1);
      const StepWish asked = t_.take_step(wish(stop));
      if (in_place_) in_place_->step_taken();
      if (!t_.done.empty()) result_.loss = t_.done.front().report.loss;
      const double seconds = now() - begin;
      watch_.check();
      report_.step(seconds, spans.take());
      saves_.step_done(seconds, asked);
      for (const auto& part : t_.parts)
        for (const std::string& line : news_of(part->run)) report_.note(line);
      result_.stopped = t_.step < steps ? asked.stop : 0;
      between_steps(asked);
      if (in_place_) leave_if(asked.regroup);
      spans.take();
      begin = now();
    }
    if (!result_.stopped) {
      held_out();
      if (checkpoint_.at_end) saves_.save(RunSaves::must_succeed, loss_of_step());
    }
    saves_.finish(RunSaves::as_configured);
    result_.steps = t_.step;
    result_.checkpoint = saves_.last();
    return result_;
  }

  StepWish wish(int stop) const {
    StepWish mine = saves_.wish(stop);
    mine.regroup = in_place_ && in_place_->is_over();
    return mine;
  }

  /// Between two steps, on all ranks.
  void leave_if(bool regroup) {
    in_place_->settled();
    if (!regroup || result_.stopped || t_.step == t_.first().steps) return;
    saves_.finish(RunSaves::as_configured);
    in_place_->keep(t_);
    throw GroupIsOver(fmt::format("the ranks leave their group after step {}", t_.step));
  }

  void between_steps(StepWish asked) {
    if (result_.stopped)
      return saves_.save(RunSaves::must_succeed, loss_of_step(), /*interrupted=*/true);
    const bool evaluates =
        (eval_every_ > 0 && t_.step % eval_every_ == 0) || (eval_epochs_ && t_.epoch_ended() > 0);
    bool due = saves_.due(asked);
    // The loss decides whether the step stays, and lies in it: evaluated first. Else what is safe
    // comes first.
    if (checkpoint_.keep_best > 0 && (evaluates || t_.step == t_.first().steps)) {
      held_out();
      if (saves_.is_among_best(result_.held_out_loss)) due = true;
    }
    if (due) saves_.save(RunSaves::as_configured, loss_of_step());
    if (t_.step < t_.first().steps && saves_.snapshot_due()) saves_.snapshot();
    if (evaluates) held_out();
  }

  double now() const {
    if (options_.clock) return options_.clock();
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  }

  std::optional<double> loss_of_step() const {
    return evaluated_at_ == t_.step ? std::optional(result_.held_out_loss) : std::nullopt;
  }

  void held_out() {
    if (!t_.first().held_out || evaluated_at_ == t_.step) return;
    evaluated_at_ = t_.step;
    mark_progress(Activity::evaluate, t_.step);
    if (const auto e = t_.built_in_evaluation()) {
      result_.held_out_loss = e->loss;
      return report_.held_out(*e);
    }
    const auto sums = t_.evaluate();
    if (!sums.empty()) result_.held_out_loss = sums[0].sum / sums[0].weight;
    report_.held_out(sums);
  }

  Trainer::Impl& t_;
  const TrainOptions& options_;
  RunReport& report_;
  RunFolderGuard& watch_;
  const CheckpointSection checkpoint_;
  RunSaves saves_;
  const int64_t eval_every_;
  const bool eval_epochs_;
  InPlace* const in_place_;
  int64_t evaluated_at_ = -1;
  TrainResult result_;
};

using MakeTrainer = std::unique_ptr<Trainer::Impl>(Program&, const Config&, Group,
                                                   const TrainerStart&);

std::vector<std::string> going_on(const Trainer::Impl& t, const DataPlace& place,
                                  const CheckpointInfo& resumed, bool from_memory) {
  const Run& run = t.first();
  std::string text = fmt::format("going on after step {}", t.step);
  if (from_memory) text += ", from the memory of the workers before";
  if (place.origin && place.samples_per_step != run.batches.train)
    text += fmt::format(" with {} samples a step (until now {}), {} of epoch {} being done",
                        run.batches.train, place.samples_per_step, place.origin->at.sample,
                        place.origin->at.epoch);
  std::vector<std::string> lines{text};
  for (const std::string& note : resumed.notes) lines.push_back(resumed.folder + ": " + note);
  return lines;
}

/// The run is built. `lines`: what is said of its beginning.
TrainResult take_all_steps(Trainer::Impl& t, const Config& config, const TrainOptions& options,
                           const std::vector<std::string>& lines) {
  const bool leads = t.group.rank() == 0;
  const bool goes_on = options.in_place && options.in_place->is_going_on();
  start_data(t.first(), config);
  SpanSink spans;
  TraceScope tracing(spans);
  RunReport report(t, options);
  if (leads && !options.config_json.empty() && !goes_on)
    write_file_atomic(options.run_dir + "/config.json", options.config_json);
  if (options.built) options.built();
  RunFolderGuard watch(leads ? options.run_dir : "");
  if (options.say && leads) {
    options.say(start_line(t));
    for (const std::string& line : lines) options.say(line);
  }
  spans.take();
  const TrainResult result = Loop(t, options, report, watch).run(spans);
  report.done();
  Group(t.group).barrier();  // the last checkpoint exists when any rank returns
  return result;
}

TrainResult train_with(MakeTrainer* make, Program& program, const Config& config, Group group,
                       const TrainOptions& given) {
  const ProgressScope progress;
  InPlace* const in_place = given.in_place;
  const bool goes_on = in_place && in_place->is_going_on();
  TrainOptions options = given;
  if (goes_on) options.resume = "the ranks that are left";
  if (group.rank() == 0) make_folders(options.run_dir);
  failpoint("train.build");
  TrainerStart start;
  if (in_place) start = in_place->start(config, group);
  std::optional<DataPlace> place;
  if (options.resume && !goes_on) {
    place = options.held ? data_place_of(*options.held) : data_place_of(*options.resume, group);
    start.fresh = false, start.data_origin = place->origin;
  }
  Trainer trainer(make(program, config, group, start));
  Trainer::Impl& t = trainer.impl();
  const CurrentDevice current(t.first().device);
  for (auto& part : t.parts) part->run.out_of_memory->when_short(options.memory_short);
  const int64_t keep_best = config.section<CheckpointSection>().keep_best;
  check<UsageError>(keep_best == 0 || t.first().held_out != nullptr,
                    "checkpoint.keep_best is {}, and this run has no held-out data: no step has a "
                    "loss to compare",
                    keep_best);
  CheckpointInfo resumed;
  if (place) mark_progress(Activity::load);
  if (place) resumed = resume_from(t, options, *place);
  if (options.held) options.held->let_go();
  const int64_t steps = t.first().steps;
  check<UsageError>(t.step <= steps,
                    "the checkpoint has taken {} steps; training.steps is {}: raise it", t.step,
                    steps);
  if (place && t.step == steps) {
    if (options.say && group.rank() == 0)
      options.say(fmt::format(
          "the run is finished: all {} steps are done. Use --steps N with a larger N to continue",
          steps));
    group.barrier();
    TrainResult finished;
    finished.steps = t.step;
    return finished;
  }
  mark_progress(Activity::load);
  std::vector<std::string> lines;
  if (place) lines = going_on(t, *place, resumed, options.held != nullptr);
  if (!in_place) return take_all_steps(t, config, options, lines);
  in_place->fill(t);
  if (goes_on) lines = {fmt::format("going on in place after step {}", t.step)};
  try {
    return take_all_steps(t, config, options, lines);
  } catch (const Error& e) {
    if (ends_group(e)) in_place->keep(t);
    throw;
  }
}

}  // namespace

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) { impl_->owner = this; }
Trainer::~Trainer() = default;

const Config& Trainer::config() const { return impl_->config; }
Group Trainer::group() const { return impl_->group; }
Group Trainer::data_parallel() const { return impl_->first().data_parallel(); }
int64_t Trainer::step() const { return impl_->step; }
int64_t Trainer::steps() const { return impl_->first().steps; }
at::Device Trainer::device() const { return impl_->first().device; }
at::Generator Trainer::generator() const { return impl_->generator; }
Network& Trainer::net() { return impl_->net; }

Batch Trainer::next_batch() {
  Run& run = impl_->first();
  check<UsageError>(run.loader != nullptr,
                    "Trainer::next_batch(): Program::data() returned no training data");
  run.own_time->computing();
  return trireme::next_batch(run);
}

StepReport Trainer::update(const std::string& name, const Batch& batch, const Loss& loss) {
  return impl_->update(name, batch, loss);
}

TrainResult train(Program& program, const Config& config, Group group,
                  const TrainOptions& options) {
  return train_with(make_trainer, program, config, std::move(group), options);
}

TrainResult train(const Config& config, Group group, const TrainOptions& options) {
  BuiltIn program;
  return train_with(make_built_in_trainer, program, config, std::move(group), options);
}

}  // namespace trireme
