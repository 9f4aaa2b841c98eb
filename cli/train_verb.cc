// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/run_folder.h"
#include "cli/verbs.h"
#include "cli/worker_start.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/config/config.h"
#include "trireme/launch/options.h"
#include "trireme/launch/text.h"
#include "trireme/store/rank_env.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const char kHelp[] = R"(Train a model from configuration files, on N ranks of this machine.

Usage: trireme train CONFIG [CONFIG …] [FLAGS]

Later files override earlier ones, --set overrides files. A run has a folder with its resolved config.json, metrics.jsonl
and checkpoints step-00000100/ …; `trireme generate` reads it.

Examples:
  trireme train examples/gpt.json --nproc-per-node 2
  trireme train examples/gpt.json ds_config.json --set training.steps=500
  trireme train examples/net.json --run-dir runs/net --metrics net.jsonl
  trireme train examples/gpt.json --resume                 # the newest run of this configuration
  trireme train --resume runs/gpt/20261121-101500          # that run, as it was configured

Flags:
  --set KEY=VALUE      set one key (trireme config show lists them); may be given often
  --steps N            training.steps
  --run-dir DIR        the run's folder [runs/<config>/<UTC time>]
  --resume [PATH]      go on from a run folder or a step folder; without PATH, from the newest run of this configuration
  --metrics FILE       a second copy of metrics.jsonl
  --help
and those of `trireme run`:
)";

const char kAfterFlags[] = R"(
Ctrl-C finishes the step, saves and exits with 130; a second one stops at once. SIGTERM does the same and exits with 75.
Exit code: 0 done, 1 failed (the block on stderr names the first cause), 2 usage or configuration.
)";

struct TrainFlags {
  std::vector<std::string> files, sets;
  std::string run_dir, metrics;
  bool resume = false, help = false;
  std::string resume_path;
};

TrainFlags parse(const std::vector<std::string>& words) {
  TrainFlags f;
  const std::vector<std::string> known = {"--set",    "--steps",   "--run-dir",
                                          "--resume", "--metrics", "--help"};
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
    check<UsageError>(std::find(known.begin(), known.end(), word) != known.end(),
                      "train: there is no flag {}{}; 'trireme train --help' lists them", word,
                      launch::nearest(word, known).empty()
                          ? ""
                          : ": did you mean " + launch::nearest(word, known) + "?");
    auto next = [&] {
      if (has_value) return value;
      check<UsageError>(i + 1 < words.size(), "train: {} needs a value", word);
      return words[++i];
    };
    if (word == "--resume") {
      f.resume = true;
      // An optional value: a word that is no flag and no configuration file.
      if (has_value)
        f.resume_path = value;
      else if (i + 1 < words.size() && words[i + 1].rfind("-", 0) != 0 &&
               fs::is_directory(words[i + 1]))
        f.resume_path = words[++i];
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
  return f;
}

}  // namespace

int train_main(int argc, char** argv) {
  std::vector<std::string> rest;
  auto launch_options = launch::extract_run_options(words_of(argc, argv), &rest);
  TrainFlags flags = parse(rest);
  if (flags.help) {
    std::fputs(kHelp, stdout);
    std::fputs(launch::run_flags_help().c_str(), stdout);
    std::fputs(kAfterFlags, stdout);
    return kExitDone;
  }

  if (flags.resume && flags.resume_path.empty()) {
    check<UsageError>(
        !flags.files.empty(),
        "train --resume: name the configuration whose newest run to resume, or the run");
    flags.resume_path = newest_run(runs_of(flags.files[0]));
  }
  std::string from;  // the run folder that is resumed
  if (flags.resume) {
    from = run_folder_of(flags.resume_path);
    if (flags.files.empty()) flags.files = {from + "/config.json"};
  }
  check<UsageError>(!flags.files.empty(),
                    "train: name a configuration, as in 'trireme train examples/gpt.json'");
  if (!flags.metrics.empty())
    flags.sets.push_back("monitor.metrics=\"" + fs::absolute(flags.metrics).string() + "\"");

  // What is wrong with the configuration is said here, once, and not by every rank.
  const Config config = Config::load(ConfigInputs::from(flags.files, flags.sets));
  // Under mpirun or srun this process is a rank already: it becomes its worker and starts nobody.
  const RankEnv self = read_rank_env();
  const bool is_rank = self.world_size > 1;
  check<UsageError>(!is_rank || !flags.run_dir.empty() || flags.resume,
                    "train: this process is rank {} of {} ({}): name the run folder with "
                    "--run-dir, so that all ranks use one",
                    self.rank, self.world_size, self.source);
  const int ranks = is_rank ? self.world_size : launch_options.nproc_per_node;
  const Batches batches = config.resolve_batches(ranks);
  if (const int64_t dp = config.get_int("parallelism.dp"); dp != 0)
    check<UsageError>(dp == ranks,
                      "{}: parallelism.dp is {}, but {} ranks are started (--nproc-per-node)",
                      config.origin("parallelism.dp"), dp, ranks);
  if (!batches.note.empty()) log_info("{}", batches.note);

  const std::string worker = worker_program();
  std::string run_dir = !flags.run_dir.empty() ? flags.run_dir
                        : flags.resume         ? from
                                               : new_run_folder(flags.files[0]);
  if (!launch_options.dry_run) {
    make_folders(run_dir);
    write_file_atomic(run_dir + "/config.json", config.to_json(&batches));
    if (self.rank == 0) log_info("run folder {}", run_dir);
  }
  run_dir = fs::absolute(run_dir).lexically_normal().string();
  std::vector<std::string> command = {worker,      "train", "--config", run_dir + "/config.json",
                                      "--run-dir", run_dir};
  if (flags.resume) {
    command.push_back("--resume");
    command.push_back(fs::absolute(flags.resume_path).lexically_normal().string());
  }
  launch_options.flight_dir = run_dir + "/flight";
  if (is_rank && !launch_options.dry_run) {
    ::setenv("TRIREME_FLIGHT_DIR", launch_options.flight_dir.c_str(), 0);
    become(command);
  }
  return start_ranks(launch_options, command, launch::FailureReport::one_line);
}

}  // namespace trireme
