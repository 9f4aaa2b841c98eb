// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/train_flags.h"

#include <filesystem>

#include "trireme/front/config_words.h"
#include "trireme/launch/flags/options.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const char kAuto[] = "auto";

const char kTrainFlags[] = R"(Flags:
  --set KEY=VALUE      set one key (trireme config show lists them); may be given often
  --steps N            training.steps
  --run-dir DIR        the run's folder [runs/<config>/<UTC time>]; one that holds a run already is refused
  --resume [PATH]      go on from a run folder or a step folder; without PATH, from --run-dir, else from the newest run of
                       this configuration
  --resume auto        for unattended jobs: resume from the newest good step of --run-dir (or of the newest run of this
                       configuration), or start anew if there is none; a damaged step is set aside
  --overwrite          delete the run that --run-dir holds, and nothing else there, and begin anew
  --force              start although the machine has less memory than the run will need
  --take-over          the job on another host that had the folder is gone: take it
  --metrics FILE       a second copy of metrics.jsonl
  --help
and those of `trireme run`:
)";

const char kTrainAfterFlags[] = R"(
Ctrl-C finishes the step, saves and exits with 130; a second one stops at once. SIGTERM, SIGHUP or SIGUSR1, to this process or
to any rank, does the same and exits with 75.
Exit code: 0 done, 1 failed (the block on stderr names the first cause), 2 usage or configuration.
)";

}  // namespace

TrainFlags parse_train_flags(const TrainFront& front, const std::vector<std::string>& words) {
  TrainFlags f;
  const auto yes = [](bool& flag) { return [&flag](const std::string&) { flag = true; }; };
  const auto to = [](std::string& text) { return [&text](const std::string& v) { text = v; }; };
  ConfigWords read = read_config_words(
      front.name, front.program + " --help",
      {{"--steps", OwnFlag::a_value, {}, {}, "training.steps"},
       {"--run-dir", OwnFlag::a_value, to(f.run_dir)},
       {"--resume", OwnFlag::perhaps_a_value,
        [&](const std::string& v) { f.resume = true, f.resume_path = v; },
        // A word that is no flag and no configuration file.
        [](const std::string& word) {
          return word == kAuto || (!word.starts_with('-') && fs::is_directory(word));
        }},
       {"--overwrite", OwnFlag::nothing, yes(f.overwrite)},
       {"--take-over", OwnFlag::nothing, yes(f.take_over)},
       {"--force", OwnFlag::nothing, yes(f.force)},
       {"--metrics", OwnFlag::a_value, to(f.metrics)}},
      words);
  f.help = read.help;
  f.files = std::move(read.files), f.sets = std::move(read.sets);
  f.resume_auto = f.resume_path == kAuto;
  if (f.resume_auto) f.resume_path.clear();
  return f;
}

std::string train_help(const TrainFront& front) {
  return front.help + "\n" + kTrainFlags + launch::run_flags_help() + kTrainAfterFlags;
}

}  // namespace trireme
