// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/run_saves.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/step_links.h"
#include "trireme/train/await_saver.h"
#include "trireme/train/rank_zero.h"

namespace trireme {
namespace {

SaveRules save_rules(const CheckpointSection& s) {
  return {.every = s.every,
          .every_too = s.keep_every,
          .every_seconds = 60 * s.every_minutes,
          .automatic = s.automatic,
          .budget = s.budget};
}

}  // namespace

RunSaves::RunSaves(Trainer::Impl& trainer, const CheckpointSection& section,
                   const std::string& run_dir, RunReport& report, RunFolderGuard& watch,
                   SecondsNow now, bool from_memory)
    : trainer_(trainer),
      section_(section),
      folder_(section.folder.value_or(run_dir)),
      report_(report),
      watch_(watch),
      schedule_(save_rules(section)),
      now_(std::move(now)),
      begin_(now_()),
      kept_(folder_, section),
      others_save_(from_memory) {
  if (section.async || section.snapshot_every > 0) saver_.emplace(folder_, trainer.group);
  check<UsageError>(section.snapshot_every == 0 || saver_->is_held(),
                    "checkpoint.snapshot_every is {}, and no launcher of ours holds snapshots of "
                    "this rank: start "
                    "it by 'trireme train' or 'trireme run', or set the key to 0",
                    section.snapshot_every);
}

bool RunSaves::leads() const { return trainer_.group.rank() == 0; }

StepWish RunSaves::wish(int stop) const {
  return {stop, leads() && schedule_.by_clock(now()), saver_ && saver_->ended()};
}

void RunSaves::step_done(double seconds, StepWish asked) {
  schedule_.step_done(seconds);
  if (asked.ended) finish(as_configured);
}

bool RunSaves::due(StepWish asked) const {
  return asked.save || schedule_.by_number(trainer_.step) ||
         (section_.names && trainer_.epoch_ended() > 0);
}

std::vector<std::string> RunSaves::names_of_step(bool interrupted) const {
  if (!section_.names) return {};
  std::vector<std::string> names;
  if (interrupted) names.emplace_back(kInterruptLink);
  if (const int64_t epoch = trainer_.epoch_ended(); epoch > 0) names.push_back(epoch_link(epoch));
  return names;
}

bool RunSaves::is_among_best(double loss) {
  const std::string answer = from_rank_0(trainer_.group, [&] {
    std::optional<SavedStep> coming;
    if (under_way_) coming = SavedStep{under_way_->step, under_way_->held_out_loss};
    return kept_.is_among_best(trainer_.step, loss, coming) ? "yes" : "no";
  });
  return answer == "yes";
}

template <class Body>
bool RunSaves::attempt(Failure failure, const Body& body) {
  try {
    body();
    return true;
  } catch (const ResourceError& e) {
    if (failure == must_succeed || section_.on_error == "stop") throw;
    if (leads()) log_warn("{}. The run goes on (checkpoint.on_error is warn)", e.what());
    return false;
  }
}

void RunSaves::save(Failure failure, std::optional<double> held_out_loss, bool interrupted) {
  const int64_t step = trainer_.step;
  const std::vector<std::string> names = names_of_step(interrupted);
  const auto is_saved = [&] {
    if (saved_at_ == step && leads()) kept_.name(step, names);
    return saved_at_ == step;
  };
  if (is_saved()) return;
  if (under_way_ && under_way_->step == step && failure == as_configured) return;
  const double begun = now();
  mark_progress(Activity::save, step);
  finish(as_configured);
  if (is_saved()) return;  // it was being saved
  from_rank_0(trainer_.group, [&] {
    watch_.check_now();
    if (std::exchange(others_save_, false)) await_saver(folder_);
    return "";
  });
  // One that must succeed would be waited for: it needs no copy, nor memory for one.
  if (section_.async && failure == as_configured)
    begin(held_out_loss, names);
  else
    write(failure, held_out_loss, names);
  schedule_.saved(now(), now() - begun, under_way_.has_value());
}

void RunSaves::write(Failure failure, std::optional<double> held_out_loss,
                     const std::vector<std::string>& names) {
  if (!attempt(failure, [&] { last_ = trainer_.save(folder_, held_out_loss); })) return;
  if (leads()) kept_.published(trainer_.step, held_out_loss, names);
  published(trainer_.step);
}

void RunSaves::begin(std::optional<double> held_out_loss, const std::vector<std::string>& names) {
  const int64_t step = trainer_.step;
  const auto in_folder = [this, step, held_out_loss, names] {
    kept_.published(step, held_out_loss, names);
  };
  if (attempt(as_configured, [&] { trainer_.save(*saver_, held_out_loss, in_folder); }))
    under_way_ = Begun{step, held_out_loss}, held_at_ = step;
}

bool RunSaves::snapshot_due() const {
  const int64_t step = trainer_.step;
  return section_.snapshot_every > 0 && step % section_.snapshot_every == 0 && saved_at_ != step &&
         held_at_ != step;
}

void RunSaves::snapshot() {
  held_at_ = trainer_.step;
  mark_progress(Activity::save, held_at_);
  attempt(as_configured, [&] { trainer_.hold(*saver_); });
}

void RunSaves::finish(Failure failure) {
  if (!under_way_) return;
  const int64_t step = std::exchange(under_way_, std::nullopt)->step;
  mark_progress(Activity::save, step);
  schedule_.written(now());
  if (attempt(failure, [&] { last_ = saver_->wait(); })) published(step);
}

void RunSaves::ranks_are_lost() {
  if (saver_) saver_->ranks_are_lost();
}

void RunSaves::published(int64_t step) {
  saved_at_ = step;
  if (leads()) report_.note(fmt::format("saved {}", last_));
}

}  // namespace trireme
