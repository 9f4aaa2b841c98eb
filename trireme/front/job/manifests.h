// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/front/job/job_spec.h"

namespace trireme::job {

enum class Manifest {
  job,         // batch/v1: an Indexed Job, and a headless Service
  pytorchjob,  // kubeflow.org/v1: training-operator
  trainjob,    // trainer.kubeflow.org/v1alpha1: a TrainJob, and its TrainingRuntime
};

/// What only Kubernetes is told.
struct KubernetesSpec {
  Manifest kind = Manifest::job;
  std::string image;
  std::string name_space;  // "": kubectl's own
  std::string
      secret;    // the name of a Secret with the key `secret`; its value is known to nobody here
  int user = 0;  // whom the container runs as; 0: as the image says
  /// PersistentVolumeClaims, and where they are mounted.
  std::vector<std::pair<std::string, std::string>> volumes;
  /// Configurations: a name that a ConfigMap takes, and the text.
  std::vector<std::pair<std::string, std::string>> configs;
};

/// Manifests for kubectl apply: a launcher in each pod, as the container's own process, so that it
/// gets the pod's SIGTERM. Pure. UsageError: a text that is not UTF-8.
TRIREME_API std::string manifests(const JobSpec& job, const KubernetesSpec& kubernetes);

}  // namespace trireme::job
