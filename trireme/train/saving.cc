// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/saving.h"

#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/writer.h"

namespace trireme {

std::string save_run(Run& run, const std::string& folder, int keep) {
  const GradientSyncStrategy::AveragedWeightsGuard one(*run.exchange);
  const StateWalk walk = [&](StateVisitor& v) { run.state(v); };
  const Group world = run.world();
  const std::string& layout = run.exchange->layout();
  if (layout == "replicated")
    return save_step(folder, run.step, walk, {keep, world.rank(), world.size()});
  return save_sharded_step(folder, run.step, walk, world, {layout, keep});
}

CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied) {
  const GradientSyncStrategy::AveragedWeightsGuard loading(*run.exchange, true);
  LoadOptions options;
  options.layout = run.exchange->layout();
  options.rank = run.world().rank();
  options.tied = tied;
  const CheckpointInfo info = load_step(
      path, [&](StateVisitor& v) { run.state(v); }, options);
  run.gradients->publish();
  return info;
}

}  // namespace trireme
