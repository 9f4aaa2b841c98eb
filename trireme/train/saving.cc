// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/saving.h"

#include "trireme/checkpoint/save/measure_snapshots.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"
#include "trireme/train/data_place.h"

namespace trireme {
namespace {

/// What a step says besides its state.
struct Beside {
  bool evaluated = false, placed = false, has_contents = false;

  StateWalk walk(const StateWalk& state) const {
    struct Read {
      double loss = 0;
      std::string contents;
    };
    return [*this, &state, read = std::make_shared<Read>()](StateVisitor& v) {
      state(v);
      if (evaluated) v.value(kHeldOutLoss, read->loss);
      if (placed) show_data_origin(v, {});
      if (has_contents) v.value(kDataContents, read->contents);
    };
  }
};

LoadOptions in_any_precision(LoadOptions options) {
  options.other_precision = true;
  return options;
}

}  // namespace

std::string save_state(Group world, const std::string& folder, int64_t step,
                       const std::string& layout, const StateWalk& walk, int keep) {
  return save_sharded_step(folder, step, walk, std::move(world), {layout, keep});
}

CheckpointInfo load_state(const std::string& path, const StateWalk& walk,
                          const LoadOptions& options) {
  const std::string folder = find_checkpoint(path);
  const Beside beside{.evaluated = number_in_step(folder, kHeldOutLoss).has_value(),
                      .placed = integer_in_step(folder, data_origin_names()[0]).has_value(),
                      .has_contents = text_in_step(folder, kDataContents).has_value()};
  return load_step(path, beside.walk(walk), in_any_precision(options));
}

CheckpointInfo load_state(std::shared_ptr<HeldStep> step, const StateWalk& walk,
                          const LoadOptions& options) {
  const auto& values = step->index().values;
  const Beside beside{.evaluated = values.contains(kHeldOutLoss),
                      .placed = values.contains(data_origin_names()[0]),
                      .has_contents = values.contains(kDataContents)};
  return load_snapshot(std::move(step), beside.walk(walk), in_any_precision(options));
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
