// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/saving.h"

#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/writer.h"

namespace trireme {

std::string save_run(Run& run, const std::string& folder, int keep) {
  const GradientSyncStrategy::AveragedWeightsGuard one(run.exchange.get());
  const StateWalk walk = [&](StateVisitor& v) { run.state(v); };
  if (run.layout == "replicated")
    return save_step(folder, run.step, walk, {keep, run.group.rank(), run.group.size()});
  return save_sharded_step(folder, run.step, walk, run.group, {run.layout, keep});
}

CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied) {
  const GradientSyncStrategy::AveragedWeightsGuard loading(run.exchange.get(), true);
  LoadOptions options;
  options.layout = run.layout;
  options.rank = run.group.rank();
  options.tied = tied;
  const CheckpointInfo info = load_step(
      path, [&](StateVisitor& v) { run.state(v); }, options);
  run.gradients->publish();
  return info;
}

}  // namespace trireme
