// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/front/device_check.h"

// The half of a training command that comes before its ranks: it reads flags and configuration,
// refuses what would fail later, takes the run folder, and starts the ranks and watches them.
namespace trireme {

/// Which command that is. As it stands: `trireme train`, but for `help` and the commands.
struct TrainFront {
  std::string program = "trireme train";  // what a person types: messages say "'PROGRAM --help'"
  std::string name = "train";             // in front of what is wrong with a flag
  std::string example = "trireme train examples/gpt.json";  // a whole command
  std::string help;  // what --help prints above the flags: what the program is for, usage, examples
  /// What becomes a rank: a program and its first words, which "--config-fd N --run-dir DIR" and
  /// the like follow. Asked when nothing refuses the run; may throw.
  std::function<std::vector<std::string>()> rank_command;
  /// This command itself: a program and its first words, which flags and files follow. What the
  /// launchers of several nodes start, and what becomes a rank then.
  std::function<std::vector<std::string>()> own_command;
  std::function<Config(const ConfigInputs&)> load = [](const ConfigInputs& inputs) {
    return Config::load(inputs);
  };
  /// Why the program cannot train so on so many ranks; "" if it can. Empty: nothing to say.
  std::function<std::string(const Config&, int ranks)> fault = {};
  /// False: the program brings its model and its data. model.* and data.* do not speak of them, and
  /// the planner cannot know whether they fit.
  bool built_in_model = true;
  /// Who knows which devices ranks will find; without, they see for themselves.
  AskDevice ask_device = {};
};

/// Reads argv[1…], and comes back with the exit code when the job has ended. Where this process is
/// a rank already (mpirun, srun, torchrun, `trireme run`) it does not come back: it becomes its
/// rank. UsageError and ResourceError: nothing was started, and no folder stays behind that was not
/// there.
///
/// For main() alone, on its thread: SIGPIPE is ignored from here on, --help goes to stdout, and the
/// job is watched as launch/launch.h says.
TRIREME_API int train_front(const TrainFront& front, int argc, char** argv);

}  // namespace trireme
