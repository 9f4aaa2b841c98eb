// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

// What a cluster is to start: a training job, as the printers of scripts and manifests see it.
namespace trireme::job {

struct JobSpec {
  std::string name;
  std::string program;  // trireme, as the nodes find it
  std::string run_dir;  // absolute
  int least_nodes = 1;  // fewer than `nodes`: they come and go
  int nodes = 1;
  int ranks_per_node = 1;
  int cpus_per_rank = 1;
  int gpus_per_node = 0;
  std::string memory;  // of a node: "16G", in units of 1024; "": not said
  int grace = 120;     // seconds between the warning and the end
  /// For `trireme train`, behind its configurations: --set, --steps and what the user gave as it
  /// is.
  std::vector<std::string> train_words;

  bool elastic() const { return least_nodes < nodes; }
  /// Launchers on several nodes show each other a secret; one keeps its own.
  bool needs_secret() const { return nodes > 1; }
  int cpus_per_node() const { return ranks_per_node * cpus_per_rank; }
  /// Of the grace, what the ranks get for their step and its save.
  int shutdown_timeout() const { return grace - 5; }
};

/// The shortest grace: less than this leaves the ranks nothing.
inline constexpr int kLeastGrace = 10;

}  // namespace trireme::job
