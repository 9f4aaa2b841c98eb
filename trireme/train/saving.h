// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/run.h"

// Saves and loads a run's step folder, whatever part of the state this rank holds. Every rank must
// call these functions.
namespace trireme {

/// Saves the run and returns the folder of the step. An error of one rank is thrown by all.
std::string save_run(Run& run, const std::string& folder, int keep);
/// The same by `saver`, which has its folder and the run's ranks: returns when the copy is made.
void save_run(Run& run, AsyncSaver& saver, int keep);
/// Bytes of the buffers that such a saver keeps on this rank (checkpoint/save/measure_snapshots.h).
int64_t measure_run_snapshots(Run& run);
/// Loads a run. `tied`: other names of the weights, under which an older version may have saved
/// them.
CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied = {});

/// The same of state that several runs have together.
std::string save_state(Group world, const std::string& folder, int64_t step,
                       const std::string& layout, const StateWalk& walk, int keep);
CheckpointInfo load_state(const std::string& path, const StateWalk& walk,
                          const LoadOptions& options);
/// … that is in memory, of all ranks on every rank.
CheckpointInfo load_state(std::shared_ptr<HeldStep> step, const StateWalk& walk,
                          const LoadOptions& options);

}  // namespace trireme
