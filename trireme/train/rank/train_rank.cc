// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/train_rank.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/rank_label.h"
#include "trireme/checkpoint/steps/run_folder/newest_good.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/front/claims.h"
#include "trireme/launch/sealed_text.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/train/rank/compare_ranks.h"
#include "trireme/train/rank/generations.h"
#include "trireme/train/rank/held_step.h"
#include "trireme/train/rank/log_file.h"
#include "trireme/train/rank/out_of_memory.h"
#include "trireme/train/rank/own_folder.h"
#include "trireme/train/rank/process.h"
#include "trireme/train/rank_zero.h"
#include "trireme/train/setup/run_device.h"

namespace trireme {
namespace {

/// What rank 0 finds to go on from; nothing: the run begins. `before`: where the run saved until
/// now, or "".
std::optional<std::string> step_to_resume(const std::string& steps, const std::string& before,
                                          Group world) {
  std::error_code error;
  const bool moved =
      !before.empty() && before != steps && !std::filesystem::equivalent(before, steps, error);
  const std::string found = from_rank_0(world, [&] {
    const std::string here = newest_good_step(steps);
    return here.empty() && moved ? newest_good_step(before) : here;
  });
  if (!found.empty()) return found;
  if (world.rank() == 0)
    log_info("there is no checkpoint in {}{}: the run begins", steps,
             moved ? ", nor where the run saved, in " + before : "");
  return std::nullopt;
}

constexpr int kLaterAttempt = 1;

/// From where to go on. Ranks that were started again go on from the newest step, and where the job
/// was told to go back to an earlier one, from there until it has saved a step of its own.
std::optional<std::string> resume_of(const TaskOptions& given, int attempt) {
  const auto from = given.find("resume");
  if (attempt == 0) return from;
  const auto before = given.find("latest-before");
  if (from && before && before == latest_beside(*from)) return from;
  return Resume::kAuto;
}

struct Choice {
  bool came_later = false;
  std::string from;
  TRIREME_FIELDS(came_later, from)
};

/// One on all ranks: that of the first one which has been there from the beginning, since the words
/// of those that came later were made of what there was when they came.
std::optional<std::string> resume_of_all(Group world, bool came_later,
                                         const std::optional<std::string>& own) {
  for (const Choice& choice : all_gather_object(world, Choice{came_later, own.value_or("")}))
    if (!choice.came_later)
      return choice.from.empty() ? std::nullopt : std::optional<std::string>(choice.from);
  return Resume::kAuto;
}

}  // namespace

int train_rank(const Words& words, const MainProgram& program) {
  const TaskOptions given(words);
  tune_worker_process();
  ::signal(SIGPIPE, SIG_IGN);  // if nothing reads the progress any more, the run continues
  // The resolved configuration comes by descriptor, because a file in the run folder may be
  // overwritten.
  std::string resolved;
  if (const auto fd = given.find("config-fd")) resolved = launch::take_sealed_text(std::stoi(*fd));
  const Config config = resolved.empty() ? program.load(ConfigInputs::from({given.get("config")}))
                                         : program.load_resolved(resolved);
  const std::string run_dir = given.get("run-dir");
  const RankEnv self = read_rank_env();
  OwnFolder folder(given, self.rank);
  run_device(config);  // refuses one that is not there before ranks wait for each other
  RankGenerations generations(config, [] { return stop_signal(); });
  if (generations.came_later()) {
    stop_after_the_step();
    forget_handed_on();  // it was for the ranks that this one comes after
  }

  std::optional<LogFile> log_file;
  TrainOptions options;
  options.run_dir = run_dir;
  options.stop_asked = [] { return stop_signal(); };
  options.say = [](const std::string& line) { log_line(LogLevel::info, line); };
  options.memory_short = give_memory_back;
  options.progress_fd = STDERR_FILENO;
  options.config_json = resolved;
  options.built = [&] {
    stop_after_the_step();
    if (log_file) log_file->open();
  };
  const auto train = [&](Group world, InPlace* in_place) {
    if (world.rank() == 0 && !log_file) log_file.emplace(run_dir + "/log.jsonl");
    if (world.rank() != 0) log_file.reset();
    options.in_place = in_place;
    options.held.reset();
    const bool first = !generations.is_later();
    const std::string steps = config.section<CheckpointSection>().folder.value_or(run_dir);
    if (in_place) folder.keep(world, steps);
    if (!first) {
      compare_configurations(config, world);
      if (in_place->find_step(world)) return program.train(config, world, options);
      check<ResourceError>(self.local_world_size == self.world_size,
                           "no rank that is left has what others have lost of the state, and no "
                           "launcher of several has all of it");
    }
    options.resume = resume_of(given, first ? self.attempt : kLaterAttempt);
    if (first)
      compare_ranks(config, world, run_dir);
    else
      options.resume = resume_of_all(world, generations.came_later(), options.resume);
    options.held = held_step_to_resume(first ? take_handed_on : ask_for_snapshots, steps, world);
    if (options.held)
      options.resume = steps;
    else if (options.resume == Resume::kAuto)
      options.resume = step_to_resume(steps, given.get("saved-in", ""), world);
    return program.train(config, world, options);
  };
  const RankGenerations::End end =
      generations.run(train, [&](Group& world, const std::exception& error) {
        world.abort(failure_text(error, program.built_in_model));
      });
  const TrainResult& result = end.result;
  if (end.exit_code) return *end.exit_code;
  const int code = !result.stopped ? kExitDone
                   // Asked to stop by a user (130), or by a system that will start us again.
                   : result.stopped == SIGINT ? kExitSignalBase + SIGINT
                                              : kExitSavedRestart;
  if (result.stopped) ignore_stop_signals();
  generations.say_over(code);
  return code;
}

}  // namespace trireme
