// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/host_memory.h"
#include "cli/refusals.h"
#include "cli/run_folder.h"
#include "cli/verbs.h"
#include "cli/worker_start.h"
#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"
#include "trireme/config/config.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/model.h"
#include "trireme/launch/options.h"
#include "trireme/launch/sealed_text.h"
#include "trireme/launch/text.h"
#include "trireme/planner/model_table.h"
#include "trireme/rendezvous/rank_env.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const char kTrainHelp[] = R"(Train a model from configuration files, on N ranks of this machine.

Usage: trireme train CONFIG [CONFIG …] [FLAGS]

Later files override earlier ones, --set overrides files. A run has a folder with its resolved config.json, metrics.jsonl
and checkpoints step-00000100/ …; `trireme generate` reads it.

Examples:
  trireme train examples/gpt.json --nproc-per-node 2
  trireme train examples/gpt.json ds_config.json --set training.steps=500
  trireme train examples/net.json --run-dir runs/net --metrics net.jsonl
  trireme train examples/gpt.json --resume                 # the newest run of this configuration
  trireme train --resume runs/gpt/20261121-101500          # that run, as it was configured
  trireme train --resume --run-dir runs/net                # the same, by its folder

Flags:
  --set KEY=VALUE      set one key (trireme config show lists them); may be given often
  --steps N            training.steps
  --run-dir DIR        the run's folder [runs/<config>/<UTC time>]; one that holds a run already is refused
  --resume [PATH]      go on from a run folder or a step folder; without PATH, from --run-dir, else from the newest run of
                       this configuration
  --overwrite          delete the run that --run-dir holds, and nothing else there, and begin anew
  --force              start although the machine has less memory than the run will need
  --take-over          the job on another host that had the folder is gone: take it
  --metrics FILE       a second copy of metrics.jsonl
  --help
and those of `trireme run`:
)";

const char kTrainAfterFlags[] = R"(
Ctrl-C finishes the step, saves and exits with 130; a second one stops at once. SIGTERM does the same and exits with 75.
Exit code: 0 done, 1 failed (the block on stderr names the first cause), 2 usage or configuration.
)";

struct TrainFlags {
  std::vector<std::string> files, sets;
  std::string run_dir, metrics;
  bool resume = false, overwrite = false, take_over = false, force = false, help = false;
  std::string resume_path;
};

TrainFlags parse_train_flags(const std::vector<std::string>& words) {
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
      fail<UsageError>("train: there is no flag {}{}; 'trireme train --help' lists them", word,
                       near);
    }
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
    } else if (word == "--overwrite" || word == "--take-over" || word == "--force") {
      check<UsageError>(!has_value, "train: {} takes no value", word);
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
  return f;
}

/// From where a run goes on; empty where it does not.
struct Resume {
  std::string from;  // a step folder, or a folder of steps
  std::string run;   // the folder of the run that it is of
};

/// Fills in what --resume leaves out: the run, and the configuration it had.
Resume what_to_resume(TrainFlags& flags) {
  if (!flags.resume) return {};
  if (flags.resume_path.empty() && !flags.run_dir.empty()) {
    flags.resume_path = flags.run_dir;
  } else if (flags.resume_path.empty()) {
    check<UsageError>(
        !flags.files.empty(),
        "train --resume: name the configuration whose newest run to resume, or the run");
    flags.resume_path = newest_run(runs_of(flags.files[0]));
  }
  Resume resume{"", run_folder_of(flags.resume_path)};
  if (flags.files.empty()) flags.files = {resume.run + "/config.json"};
  std::error_code error;
  const bool whole = fs::equivalent(resume.run, flags.resume_path, error);
  resume.from = fs::absolute(whole ? steps_folder_of(resume.run) : flags.resume_path)
                    .lexically_normal()
                    .string();
  return resume;
}

/// "-" is standard output. Workers may have another working folder one day: absolute.
std::string metrics_place(const std::string& given) {
  return given == "-" ? given : fs::absolute(given).string();
}

/// Says what is being built, which may take minutes.
void announce(const Config& config, const MemoryCheck& memory) {
  if (!memory.known) return;
  const bool fits = memory.verdict.fit == MemoryVerdict::Fit::fits;
  if (!fits) log_warn("{}. If it fails: {}", memory.verdict.text, memory_advice(memory.plan));
  log_info("building {} with {} parameters{}", config.section<ModelSection>().type,
           count_text(memory.plan.model.numel()), fits ? "; " + memory.verdict.text : "");
}

/// What this job has taken: its run folder, and where its steps go if that is another one.
struct Claims {
  RunFolder run;
  std::optional<RunFolder> steps;

  void remove_unbegun() {
    run.remove_unbegun();
    if (steps) steps->remove_unbegun();
  }
  /// The workers hold the locks, too: until they are gone, nobody else starts here.
  void pass_on() const {
    run.lock().pass_on();
    if (steps) steps->lock().pass_on();
  }
  /// To the program that this process is about to become.
  void hand_over(std::vector<std::string>* command) const {
    pass_on();
    command->insert(command->end(), {"--lock-fd", std::to_string(run.lock().fd())});
    if (steps)
      command->insert(command->end(), {"--steps", steps->path(), "--steps-lock-fd",
                                       std::to_string(steps->lock().fd())});
    if (!run.made().empty()) command->insert(command->end(), {"--made", run.made()});
  }
};

Claims claim(const TrainFlags& flags, const Resume& resume, const Config& config) {
  std::error_code error;
  const bool goes_on =
      flags.resume && (flags.run_dir.empty() || fs::equivalent(flags.run_dir, resume.run, error));
  check<UsageError>(!goes_on || !flags.overwrite,
                    "train: --resume goes on with the run in {} and --overwrite deletes it: give "
                    "one of them",
                    resume.run);
  ClaimOptions options;
  options.use = goes_on           ? FolderUse::resume
                : flags.overwrite ? FolderUse::overwrite
                                  : FolderUse::fresh;
  options.take_over = flags.take_over;
  const std::string folder = flags.run_dir.empty() ? resume.run : flags.run_dir;
  // Asked before the old run is deleted.
  const std::string old_steps = folder.empty() ? "" : steps_folder_of(folder);
  Claims claims{
      folder.empty() ? RunFolder::fresh_below(runs_of(flags.files[0])) : RunFolder(folder, options),
      std::nullopt};
  const auto asked = config.section<CheckpointSection>().folder;
  if (!asked) return claims;
  const std::string& steps = *asked;
  if (fs::equivalent(steps, claims.run.path(), error)) return claims;
  const bool old_runs = fs::equivalent(steps, old_steps, error);
  try {
    claims.steps.emplace(RunFolder::for_steps(steps, options, old_runs));
  } catch (...) {
    if (!goes_on) claims.run.remove_unbegun();
    throw;
  }
  return claims;
}

}  // namespace

int train_main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // a reader that leaves (| head) does not end a run, nor its workers
  std::vector<std::string> rest;
  auto launch_options = launch::extract_run_options(words_of(argc, argv), &rest);
  TrainFlags flags = parse_train_flags(rest);
  if (flags.help) {
    std::fputs(kTrainHelp, stdout);
    std::fputs(launch::run_flags_help().c_str(), stdout);
    std::fputs(kTrainAfterFlags, stdout);
    return kExitDone;
  }

  const Resume resume = what_to_resume(flags);
  check<UsageError>(!flags.files.empty(),
                    "train: name a configuration, as in 'trireme train examples/gpt.json'");
  if (!flags.metrics.empty())
    flags.sets.push_back("monitor.metrics=" + nlohmann::json(metrics_place(flags.metrics)).dump());

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
  for (const auto& sentence : refusals_of(config, ranks)) fail<UsageError>("{}", sentence);
  if (!batches.note.empty()) log_info("{}", batches.note);
  const std::string worker = worker_program();

  const MemoryCheck memory =
      check_memory(config, ranks, is_rank ? std::max(1, self.local_world_size) : ranks);
  check<ResourceError>(!memory.impossible() || flags.force, "{}", memory.refusal());

  // A rank of somebody else's launcher leaves the folder to rank 0.
  std::optional<Claims> claims;
  std::string run_dir = flags.run_dir.empty() ? resume.run : flags.run_dir;
  if (launch_options.dry_run) {
    if (run_dir.empty()) run_dir = runs_of(flags.files[0]) + "/<UTC time>";
  } else if (self.rank == 0) {
    claims.emplace(claim(flags, resume, config));
    run_dir = claims->run.path();
    log_info("run folder {}", run_dir);
    announce(config, memory);
  }
  if (!launch_options.dry_run) run_dir = fs::absolute(run_dir).lexically_normal().string();

  UniqueFd sealed;
  if (!launch_options.dry_run)
    sealed = launch::seal_text("trireme-config", config.to_json(&batches));
  std::vector<std::string> command = {
      worker,      "train", "--config-fd", sealed ? std::to_string(sealed.get()) : "<descriptor>",
      "--run-dir", run_dir};
  if (flags.resume) command.insert(command.end(), {"--resume", resume.from});
  launch_options.flight_dir = run_dir + "/flight";
  if (is_rank && !launch_options.dry_run) {
    ::setenv("TRIREME_FLIGHT_DIR", launch_options.flight_dir.c_str(), 0);
    if (claims) claims->hand_over(&command);
    become(command);
  }
  if (claims) claims->pass_on();
  int code = kExitFailed;
  try {
    code = start_ranks(launch_options, command, launch::FailureReport::one_line);
  } catch (...) {
    if (claims) claims->remove_unbegun();
    throw;
  }
  if (claims && code != kExitDone) claims->remove_unbegun();
  return code;
}

}  // namespace trireme
