// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/front/run_folder.h"
#include "trireme/front/train_flags.h"

// Which run a job goes on with, and which folders it takes for itself.
namespace trireme {

/// From where a run goes on; empty where it does not.
struct Resume {
  /// What follows --resume in a rank's words, where rank 0 is to choose the step.
  static constexpr const char* kAuto = "auto";
  std::string from;  // a step folder, a folder of steps, or kAuto
  std::string run;   // the folder of the run that it is of; "": of a run that begins
  /// Where the config.json of `run` says that it saved, absolute; "": there is no run.
  std::string saved_in = {};
};

/// Fills in what --resume leaves out: the run, and the configuration it had. UsageError.
Resume what_to_resume(const TrainFront& front, TrainFlags& flags);

/// Whether the job goes on with the run that it resumes, in its folder.
bool goes_on(const TrainFlags& flags, const Resume& resume);
/// The configuration, with an absolute checkpoint.folder: whoever goes on with the run may stand in
/// another folder. A relative one that is not there gives way to where the run that goes on saved.
Config with_absolute_steps(const TrainFront& front, const TrainFlags& flags, const Resume& resume);

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
  void hand_over(std::vector<std::string>* command) const;
};

/// Takes them, or says who has them or why they cannot be used; nothing stays behind then.
Claims claim(const TrainFront& front, const TrainFlags& flags, const Resume& resume,
             const Config& config);

}  // namespace trireme
