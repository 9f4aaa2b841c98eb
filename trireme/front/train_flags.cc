// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/train_flags.h"

#include <algorithm>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/front/words.h"
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
  const std::vector<std::string> known = {"--set",    "--steps",     "--run-dir",
                                          "--resume", "--overwrite", "--take-over",
                                          "--force",  "--metrics",   "--help"};
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i], value;
    if (word == "-h" || word == "--help") {
      f.help = true;
      return f;
    }
    if (word.rfind("-", 0) != 0) {
      f.files.push_back(word);
      continue;
    }
    const auto equals = word.find('=');
    const bool has_value = equals != std::string::npos;
    if (has_value) value = word.substr(equals + 1), word.resize(equals);
    std::replace(word.begin(), word.end(), '_', '-');
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      const std::string near = did_you_mean(word, launch::with_run_flags(known));
      fail<UsageError>("{}: there is no flag {}{}; '{} --help' lists them", front.name, word, near,
                       front.program);
    }
    auto next = [&] {
      if (has_value) return value;
      check<UsageError>(i + 1 < words.size(), "{}: {} needs a value", front.name, word);
      return words[++i];
    };
    if (word == "--resume") {
      f.resume = true;
      // An optional value: a word that is no flag and no configuration file.
      if (has_value)
        f.resume_path = value;
      else if (i + 1 < words.size() && words[i + 1] == kAuto)
        f.resume_path = words[++i];
      else if (i + 1 < words.size() && words[i + 1].rfind("-", 0) != 0 &&
               fs::is_directory(words[i + 1]))
        f.resume_path = words[++i];
    } else if (word == "--overwrite" || word == "--take-over" || word == "--force") {
      check<UsageError>(!has_value, "{}: {} takes no value", front.name, word);
      (word == "--overwrite" ? f.overwrite : word == "--take-over" ? f.take_over : f.force) = true;
    } else if (word == "--set") {
      f.sets.push_back(next());
    } else if (word == "--steps") {
      f.sets.push_back("training.steps=" + next());
    } else if (word == "--run-dir") {
      f.run_dir = next();
    } else {
      f.metrics = next();
    }
  }
  f.resume_auto = f.resume_path == kAuto;
  if (f.resume_auto) f.resume_path.clear();
  return f;
}

std::string train_help(const TrainFront& front) {
  return front.help + "\n" + kTrainFlags + launch::run_flags_help() + kTrainAfterFlags;
}

}  // namespace trireme
