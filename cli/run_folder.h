// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Where runs lie: runs/<config>/<UTC time>/ with config.json, metrics.jsonl, step-00000100/,
// latest.
namespace trireme {

/// runs/<config>, for examples/<config>.json.
std::string runs_of(const std::string& config_file);
/// A name that is free, below runs_of(); not made yet.
std::string new_run_folder(const std::string& config_file);
/// The newest run below `runs` that holds a checkpoint. UsageError where there is none.
std::string newest_run(const std::string& runs);
/// The run folder that a run folder or one of its step folders belongs to. UsageError for anything
/// else.
std::string run_folder_of(const std::string& path);
void make_folders(const std::string& path);

}  // namespace trireme
