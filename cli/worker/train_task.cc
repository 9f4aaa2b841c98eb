// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <optional>

#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/run.h"
#include "trireme/config/config.h"
#include "trireme/train/trainer.h"

namespace trireme {

int train_task(const Words& words) {
  const TaskOptions given(words);
  tune_worker_process();
  catch_stop_signals();
  const Config config = Config::load(ConfigInputs::from({given.get("config")}));
  InitOptions init;
  init.backend = config.get_string("comm.backend");
  init.timeout = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(config.get_double("comm.timeout_s")));
  Group world = init_process_group(init);
  set_thread_rank(world.rank());  // under mpirun and srun RANK does not say it

  std::optional<LogFile> log_file;
  if (world.rank() == 0) log_file.emplace(given.get("run-dir") + "/log.jsonl");
  TrainOptions options;
  options.run_dir = given.get("run-dir");
  options.resume = given.find("resume");
  options.stop_asked = [] { return stop_signal(); };
  options.say = [](const std::string& line) { log_line(LogLevel::info, line); };
  options.memory_short = give_memory_back;
  options.progress_fd = STDERR_FILENO;
  TrainResult result;
  try {
    result = train(config, world, options);
  } catch (const std::exception& error) {
    world.abort(brief(error));
    throw;
  }
  if (!result.stopped) return kExitDone;
  // Asked to stop: by a person (130), or by whoever will start us again.
  return result.stopped == SIGTERM ? kExitSavedStartAgain : kExitSignalBase + SIGINT;
}

}  // namespace trireme
