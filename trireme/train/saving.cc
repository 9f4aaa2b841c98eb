// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/saving.h"

#include "trireme/checkpoint/save/measure_snapshots.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/train/data_place.h"

namespace trireme {

std::string save_state(Group world, const std::string& folder, int64_t step,
                       const std::string& layout, const StateWalk& walk, int keep) {
  return save_sharded_step(folder, step, walk, std::move(world), {layout, keep});
}

CheckpointInfo load_state(const std::string& path, const StateWalk& walk,
                          const LoadOptions& options) {
  // What a step says besides its state.
  const std::string folder = find_checkpoint(path);
  const bool evaluated = number_in_step(folder, kHeldOutLoss).has_value();
  const bool placed = integer_in_step(folder, data_origin_names()[0]).has_value();
  const bool has_contents = text_in_step(folder, kDataContents).has_value();
  double loss = 0;
  std::string contents;
  LoadOptions any = options;
  any.other_precision = true;
  return load_step(
      path,
      [&](StateVisitor& v) {
        walk(v);
        if (evaluated) v.value(kHeldOutLoss, loss);
        if (placed) show_data_origin(v, {});
        if (has_contents) v.value(kDataContents, contents);
      },
      any);
}

std::string save_run(Run& run, const std::string& folder, int keep) {
  const GradientSyncStrategy::AveragedWeightsGuard one(*run.exchange);
  return save_state(
      run.world(), folder, run.step, run.exchange->layout(), [&](StateVisitor& v) { run.state(v); },
      keep);
}

void save_run(Run& run, AsyncSaver& saver, int keep) {
  const GradientSyncStrategy::AveragedWeightsGuard one(*run.exchange);
  saver.save(run.step, [&](StateVisitor& v) { run.state(v); }, {run.exchange->layout(), keep});
}

int64_t measure_run_snapshots(Run& run) {
  const GradientSyncStrategy::AveragedWeightsGuard one(*run.exchange);
  return measure_snapshots([&](StateVisitor& v) { run.state(v); }, run.world());
}

CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied) {
  const GradientSyncStrategy::AveragedWeightsGuard loading(*run.exchange, true);
  LoadOptions options;
  options.group = run.world();
  options.tied = with_copies(tied, run.layouts);
  options.check_first = run.step > 0;  // what has been trained is not lost by a failed load
  const CheckpointInfo info = load_state(
      path, [&](StateVisitor& v) { run.state(v); }, options);
  run.loaded();
  return info;
}

}  // namespace trireme
