// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"
#include "trireme/checkpoint/steps/run_folder/retention.h"
#include "trireme/checkpoint/steps/run_folder/saver_lock.h"

namespace trireme {

/// A step on its way into a run folder: made under a temporary name while a lock keeps other savers
/// out, seen by one rename. What was not published goes with the object. Used by one rank.
class TRIREME_API StepDraft {
 public:
  /// `trireme checkpoint prune` has the lock for a moment, and `import` while it writes: a save
  /// waits for so long.
  static constexpr Duration kPatience = std::chrono::seconds(10);

  /// Makes the run folder if need be, locks it, removes temporaries of dead runs and makes a new
  /// one. ResourceError; of the lock, when another process has not let go within `patience`, or at
  /// once when another saver of this process has it.
  StepDraft(const std::string& run_dir, int64_t step, Duration patience = kPatience,
            GenerationFence fence = GenerationFence::of_environment());
  ~StepDraft();
  StepDraft(const StepDraft&) = delete;

  /// The temporary folder's name in the run folder. It holds the files of the step.
  const std::string& name() const { return name_; }
  std::string folder() const { return run_dir_ + "/" + name_; }
  /// Shows the folder as the step; ResourceError: it is not shown (or another saver, which took
  /// this one for dead, has the folder; or the job goes on without this part of it).
  void publish();
  /// Then: makes that durable, replaces `latest`, deletes all but the `keep` newest up to this
  /// step (later ones belong to a run that this one has branched off). ResourceError: the step is
  /// there, but `latest` may name the one before, and nothing was deleted.
  void settle(int keep);

 private:
  // One saver at a time in a run folder, so that every temporary found under the lock is a dead
  // run's.
  void lock(Duration patience);

  std::string run_dir_;
  int64_t step_;
  const GenerationFence fence_;
  std::optional<SaverLock> lock_;
  std::string name_, aside_;
};

/// Deletes the steps that the rule does not keep, now that `current` is saved; `steps` are those of
/// the folder. One that cannot be deleted is a warning.
TRIREME_API void prune_steps(const std::string& run_dir, const std::vector<SavedStep>& steps,
                             int64_t current, const RetentionRule& rule);
/// Under the lock: gives steps the names of temporaries, durably. What is returned may then be
/// deleted without the lock. ResourceError.
TRIREME_API std::vector<std::string> hide_steps(const std::string& run_dir,
                                                const std::vector<int64_t>& steps);

/// " The checkpoint needs N bytes, the disk has M free.", or "".
TRIREME_API std::string space_text(const std::string& run_dir, uint64_t needed,
                                   std::string_view what = "The checkpoint");

}  // namespace trireme
