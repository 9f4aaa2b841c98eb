// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/run_lock.h"

// Where runs lie: runs/<config>/<UTC time>/ with config.json, metrics.jsonl, step-00000100/,
// latest; and whose they are.
namespace trireme {

/// runs/<config>, for examples/<config>.json.
std::string runs_of(const std::string& config_file);
/// The newest run below `runs` that holds a checkpoint. UsageError where there is none.
std::string newest_run(const std::string& runs);
/// The newest run below `runs` that holds a step, damaged ones included; "": there is none.
std::string newest_run_with_steps(const std::string& runs);
/// What a link to a step in its own folder names (checkpoint.names); any other path as it is.
std::string behind_link(const std::string& path);
/// The run folder that a run folder or one of its step folders belongs to. UsageError for anything
/// else.
std::string run_folder_of(const std::string& path);
/// Where a run's steps are: what its config.json calls checkpoint.folder, else the folder itself.
std::string steps_folder_of(const std::string& run_folder);
/// Whether a step, also one that was set aside, or `latest` is in the folder.
TRIREME_API bool has_steps(const std::string& folder);
/// Where to look for the steps of what somebody names: that folder if it has any, else what was
/// named.
TRIREME_API std::string steps_named_by(const std::string& path);

/// What the file `latest` beside a step folder says ("-" where there is none); nullopt for a path
/// that is no step folder.
TRIREME_API std::optional<std::string> latest_beside(const std::string& path);

/// What a folder holds, as far as a run that starts in it is concerned.
struct FolderFound {
  bool is_run = false;               // a config.json or metrics.jsonl that trireme wrote
  std::vector<std::string> steps;    // names of step folders, rising
  std::vector<std::string> damaged;  // … and of those that --resume auto has set aside
  bool has_metrics = false;          // of at least one step
  bool has_other = false;            // anything else, but for a lock
  std::string foreign;               // what a run would write over and trireme did not write; or ""
};
FolderFound look_into(const std::string& folder);

enum class FolderUse { fresh, overwrite, resume, resume_or_begin };
/// Why a run may not start in a folder where that was found; "" where it may. Pure.
std::string refusal_of(const FolderFound& found, FolderUse use, const std::string& folder);

/// Deletes what a run leaves in its folder, by name, and nothing else. ResourceError.
void delete_run(const std::string& folder);

struct ClaimOptions {
  FolderUse use = FolderUse::fresh;
  bool take_over = false;  // the folder of a job on another host
  /// The job had it before, and may have lost the node that did.
  bool after_predecessor = false;
};

/// A folder that this job has made where it was missing, locked, and found to be free for its use.
class RunFolder {
 public:
  /// UsageError and ResourceError leave nothing behind that was not there.
  RunFolder(const std::string& folder, const ClaimOptions& options);
  /// The run's folder below runs_of(), named after the time; two starts in one second get two.
  static RunFolder fresh_below(const std::string& runs);
  /// Steps that are kept apart from the run (checkpoint.folder). Those of another run are refused;
  /// with FolderUse::overwrite they are deleted where `are_the_old_runs`.
  static RunFolder for_steps(const std::string& folder, const ClaimOptions& options,
                             bool are_the_old_runs);
  RunFolder(RunFolder&&) = default;

  const std::string& path() const { return path_; }  // absolute
  /// A run that this one goes on with.
  bool was_there() const { return was_there_; }
  const launch::RunLock& lock() const { return *lock_; }
  /// The folder nearest to the root that had to be made; "": all were there.
  const std::string& made() const { return made_; }
  /// The job ended: if it did no step of a new run, what it wrote goes, and the folders that were
  /// made for it.
  void remove_unbegun();

 private:
  RunFolder() = default;
  void make(const std::string& folder);
  void take(const ClaimOptions& options);

  std::string path_, made_;
  bool was_there_ = false;
  std::optional<launch::RunLock> lock_;
};

/// As RunFolder::remove_unbegun, for a process that another one claimed the folder for. Nothing
/// happens where a step was done. Call it when the lock is gone.
TRIREME_API void remove_unbegun_run(const std::string& folder, const std::string& made);

}  // namespace trireme
