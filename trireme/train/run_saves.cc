// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/run_saves.h"

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/folders.h"
#include "trireme/checkpoint/steps/run_folder.h"
#include "trireme/train/rank_zero.h"
#include "trireme/train/saving.h"

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
                   const std::string& run_dir, RunReport& report, RunFolderGuard& watch)
    : trainer_(trainer),
      section_(section),
      folder_(section.folder.value_or(run_dir)),
      report_(report),
      watch_(watch),
      schedule_(save_rules(section)) {}

double RunSaves::now() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

bool RunSaves::leads() const { return trainer_.group.rank() == 0; }

StepWish RunSaves::wish(int stop) const { return {stop, leads() && schedule_.by_clock(now())}; }

void RunSaves::step_done(double seconds) { schedule_.step_done(seconds); }

bool RunSaves::due(StepWish asked) const {
  return asked.save || schedule_.by_number(trainer_.step);
}

std::vector<SavedStep> RunSaves::saved_steps() {
  std::vector<SavedStep> steps;
  for (int64_t step : list_steps(folder_)) {
    if (section_.keep_best > 0 && !losses_.contains(step))
      losses_[step] = number_in_step(folder_ + "/" + step_folder_name(step), kHeldOutLoss);
    steps.push_back({step, section_.keep_best > 0 ? losses_[step] : std::nullopt});
  }
  return steps;
}

bool RunSaves::is_among_best(double loss) {
  const std::string answer = from_rank_0(trainer_.group, [&] {
    std::vector<SavedStep> before = saved_steps();
    std::erase_if(before, [&](const SavedStep& s) { return s.step >= trainer_.step; });
    return trireme::is_among_best(before, loss, section_.keep_best) ? "yes" : "no";
  });
  return answer == "yes";
}

void RunSaves::save(Failure failure, std::optional<double> held_out_loss) {
  const int64_t step = trainer_.step;
  if (saved_at_ == step) return;
  from_rank_0(trainer_.group, [&] {
    watch_.check_now();
    return "";
  });
  const double begin = now();
  try {
    last_ = trainer_.save(folder_, held_out_loss);
    saved_at_ = step;
  } catch (const ResourceError& e) {
    if (failure == must_succeed || section_.on_error == "stop") throw;
    if (leads()) log_warn("{}. The run goes on (checkpoint.on_error is warn)", e.what());
  }
  schedule_.saved(now(), now() - begin);
  if (saved_at_ != step || !leads()) return;
  losses_[step] = held_out_loss;
  prune_steps(folder_, saved_steps(), step,
              {section_.keep, section_.keep_best, section_.keep_every});
  report_.note(fmt::format("saved {}", last_));
}

}  // namespace trireme
