// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/front/job/job_spec.h"
#include "trireme/front/job/manifests.h"
#include "trireme/front/job/slurm_script.h"

// The command line of `trireme job`.
namespace trireme::job {

struct JobFlags {
  JobSpec job;
  SlurmSpec slurm;
  KubernetesSpec kubernetes;
  std::vector<std::string> files, sets;  // configurations as they were named
  bool submit = false, help = false;
};

/// Words after `slurm`. `folder`: where the command is given, absolute; `program`: this one.
/// UsageError: what a cluster would refuse later, or read as something else.
TRIREME_API JobFlags parse_slurm_flags(const std::vector<std::string>& words,
                                       const std::string& folder, const std::string& program);
/// Words after `kubernetes`. Reads the configurations' texts.
TRIREME_API JobFlags parse_kubernetes_flags(const std::vector<std::string>& words);

}  // namespace trireme::job
