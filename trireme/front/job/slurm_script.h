// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/front/job/job_spec.h"

namespace trireme::job {

/// What only Slurm is told. No value has a character that a directive would read as an end or a
/// quote.
struct SlurmSpec {
  std::vector<std::string> configs;     // absolute
  std::string folder;                   // in which the command was given: relative paths mean it
  std::vector<std::string> directives;  // "--partition=p": the user's, in order
};

/// A batch script for sbatch. One launcher a node, by srun:
/// - The warning goes to the launchers and not to the script's shell, which outlives them to see
///   that they end with 75, and to put the job back into the queue.
/// - The secret of a job on several nodes is made when it starts, in a file of mode 0600 in the
///   run folder, and goes with it.
/// Pure.
TRIREME_API std::string slurm_script(const JobSpec& job, const SlurmSpec& slurm);

}  // namespace trireme::job
