// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/saving.h"

#include "trireme/checkpoint/sharded_writer.h"

namespace trireme {

std::string save_run(Run& run, const std::string& folder, int keep) {
  const GradientSyncStrategy::AveragedWeightsGuard one(*run.exchange);
  const StateWalk walk = [&](StateVisitor& v) { run.state(v); };
  const Group world = run.world();
  return save_sharded_step(folder, run.step, walk, world, {run.exchange->layout(), keep});
}

CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied) {
  const GradientSyncStrategy::AveragedWeightsGuard loading(*run.exchange, true);
  LoadOptions options;
  options.group = run.world();
  options.tied = tied;
  const CheckpointInfo info = load_step(
      path, [&](StateVisitor& v) { run.state(v); }, options);
  run.gradients->publish();
  return info;
}

}  // namespace trireme
