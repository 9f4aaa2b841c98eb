// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/saving.h"

#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/train/rank_zero.h"

namespace trireme {

std::string save_state(Group world, const std::string& folder, int64_t step,
                       const std::string& layout, const StateWalk& walk, int keep) {
  if (layout != "replicated") return save_sharded_step(folder, step, walk, world, {layout, keep});
  const SaveOptions options{keep, world.rank(), world.size()};
  const std::string saved =
      from_rank_0(world, [&] { return save_step(folder, step, walk, options); });
  return world.rank() == 0 ? saved : "";
}

CheckpointInfo load_state(const std::string& path, const StateWalk& walk,
                          const LoadOptions& options) {
  const bool evaluated = number_in_step(find_checkpoint(path), kHeldOutLoss).has_value();
  double loss = 0;  // of the step, not of the state
  return load_step(
      path,
      [&](StateVisitor& v) {
        walk(v);
        if (evaluated) v.value(kHeldOutLoss, loss);
      },
      options);
}

std::string save_run(Run& run, const std::string& folder, int keep) {
  const GradientSyncStrategy::AveragedWeightsGuard one(*run.exchange);
  return save_state(
      run.world(), folder, run.step, run.exchange->layout(), [&](StateVisitor& v) { run.state(v); },
      keep);
}

CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied) {
  const GradientSyncStrategy::AveragedWeightsGuard loading(*run.exchange, true);
  LoadOptions options;
  options.layout = run.exchange->layout();
  options.rank = run.world().rank();
  options.tied = tied;
  const CheckpointInfo info = load_state(
      path, [&](StateVisitor& v) { run.state(v); }, options);
  run.gradients->publish();
  return info;
}

}  // namespace trireme
