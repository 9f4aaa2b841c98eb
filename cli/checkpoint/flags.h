// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// The verbs of `trireme checkpoint`. Each returns the exit code; errors leave by throwing.
namespace trireme {

struct CheckpointFlags {
  std::string path, other;  // a run folder or a step folder; `other`: of diff
  std::string named;        // `path` as it was given: the steps may be elsewhere
  std::string json;         // "": text alone; "-": JSON on stdout in place of it; else a file
  std::string tensors;      // a glob; "": all
  bool values = false;
  bool all = false;
  double tolerance = 0;
  int64_t keep = 0, keep_best = 0, keep_every = 0;
  bool dry_run = false;
  // export, import. `other` is where to.
  std::string format, names, max_shard;
  std::vector<std::string> map;  // "old=new"
  bool state = false, force = false;
  int64_t heads = 0;
};

int checkpoint_ls(const CheckpointFlags& flags);
int checkpoint_show(const CheckpointFlags& flags);
int checkpoint_verify(const CheckpointFlags& flags);
int checkpoint_diff(const CheckpointFlags& flags);
int checkpoint_prune(const CheckpointFlags& flags);
int checkpoint_export(const CheckpointFlags& flags);
int checkpoint_import(const CheckpointFlags& flags);

}  // namespace trireme
