// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/claims.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/config/sections/checkpoint.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

std::string saved_in(const std::string& run) {
  return fs::absolute(steps_folder_of(run)).lexically_normal().string();
}

/// The run may be there, or not yet.
Resume resume_unattended(const TrainFront& front, TrainFlags& flags) {
  check<UsageError>(!flags.files.empty() || !flags.run_dir.empty(),
                    "{} --resume auto: name the run (--run-dir), or the configuration whose newest "
                    "run to go on with",
                    front.name);
  const std::string run =
      flags.run_dir.empty() ? newest_run_with_steps(runs_of(flags.files[0])) : flags.run_dir;
  const std::string config = run + "/config.json";
  if (flags.files.empty()) {
    check<UsageError>(fs::exists(config),
                      "{} --resume auto: there is no run in {} yet: name the configuration that it "
                      "begins with, as in '{}'",
                      front.name, run, front.example);
    flags.files = {config};
  }
  return {Resume::kAuto, run, run.empty() ? "" : saved_in(run)};
}

}  // namespace

Resume what_to_resume(const TrainFront& front, TrainFlags& flags) {
  if (!flags.resume) return {};
  if (flags.resume_auto) return resume_unattended(front, flags);
  if (flags.resume_path.empty() && !flags.run_dir.empty()) {
    flags.resume_path = flags.run_dir;
  } else if (flags.resume_path.empty()) {
    check<UsageError>(!flags.files.empty(),
                      "{} --resume: name the configuration whose newest run to resume, or the run",
                      front.name);
    flags.resume_path = newest_run(runs_of(flags.files[0]));
  }
  flags.resume_path = behind_link(flags.resume_path);
  Resume resume{"", run_folder_of(flags.resume_path)};
  resume.saved_in = saved_in(resume.run);
  if (flags.files.empty()) flags.files = {resume.run + "/config.json"};
  std::error_code error;
  const bool whole = fs::equivalent(resume.run, flags.resume_path, error);
  resume.from =
      whole ? resume.saved_in : fs::absolute(flags.resume_path).lexically_normal().string();
  return resume;
}

bool goes_on(const TrainFlags& flags, const Resume& resume) {
  std::error_code error;
  return flags.resume && (flags.run_dir.empty() || flags.resume_auto ||
                          fs::equivalent(flags.run_dir, resume.run, error));
}

Config with_absolute_steps(const TrainFront& front, const TrainFlags& flags, const Resume& resume) {
  ConfigInputs inputs = ConfigInputs::from(flags.files, flags.sets);
  Config config = front.load(inputs);
  const auto given = config.section<CheckpointSection>().folder;
  if (!given || given->empty() || fs::path(*given).is_absolute()) return config;
  std::string folder = fs::absolute(*given).lexically_normal().string();
  std::error_code error;
  if (goes_on(flags, resume) && !resume.saved_in.empty() && !fs::exists(folder, error) &&
      has_steps(resume.saved_in)) {
    log_info("there is no {}: checkpoint.folder is {}, where the run saved", folder,
             resume.saved_in);
    folder = resume.saved_in;
  }
  inputs.overrides.push_back(
      {"checkpoint.folder", nlohmann::json(folder).dump(), config.origin("checkpoint.folder")});
  return front.load(inputs);
}

void Claims::hand_over(std::vector<std::string>* command) const {
  pass_on();
  command->insert(command->end(), {"--lock-fd", std::to_string(run.lock().fd())});
  if (steps)
    command->insert(command->end(), {"--steps", steps->path(), "--steps-lock-fd",
                                     std::to_string(steps->lock().fd())});
  if (!run.made().empty()) command->insert(command->end(), {"--made", run.made()});
}

Claims claim(const TrainFront& front, const TrainFlags& flags, const Resume& resume,
             const Config& config) {
  std::error_code error;
  const bool going_on = goes_on(flags, resume);
  check<UsageError>(
      !going_on || !flags.overwrite,
      "{}: --resume goes on with the run in {} and --overwrite deletes it: give one of "
      "them",
      front.name, resume.run.empty() ? "its folder" : resume.run);
  ClaimOptions options;
  options.use = flags.resume_auto && going_on ? FolderUse::resume_or_begin
                : going_on                    ? FolderUse::resume
                : flags.overwrite             ? FolderUse::overwrite
                                              : FolderUse::fresh;
  options.take_over = flags.take_over;
  options.after_predecessor = flags.started_again;
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
  // Of a run that begins they would be another's.
  if (options.use == FolderUse::resume_or_begin && !claims.run.was_there())
    options.use = FolderUse::fresh;
  try {
    claims.steps.emplace(RunFolder::for_steps(steps, options, old_runs));
  } catch (...) {
    claims.run.remove_unbegun();
    throw;
  }
  return claims;
}

}  // namespace trireme
