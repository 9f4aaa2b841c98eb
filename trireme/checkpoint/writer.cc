// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/writer.h"

#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/step_files.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"

namespace trireme {

std::string save_step(const std::string& run_dir, int64_t step, const StateWalk& walk,
                      const SaveOptions& options) {
  check<UsageError>(step >= 0, "save_step: step {} is negative", step);
  check<UsageError>(options.keep >= 1,
                    "save_step: keep is {}: at least the new checkpoint must stay", options.keep);
  check<UsageError>(options.world >= 1 && options.rank >= 0 && options.rank < options.world,
                    "save_step: rank {} of a world of {}", options.rank, options.world);
  if (options.rank != 0) return "";
  Span span("checkpoint", "save");

  Collector state;
  walk(state);
  for (const HeldTensor& t : state.held.tensors)
    check<UsageError>(t.slice.is_whole(),
                      "checkpoint: '{}' is a part of a tensor: state that is split over ranks is "
                      "for save_sharded_step",
                      t.slice.name);
  SavePlan plan = plan_save({state.held});
  plan.index.step = step;
  plan.index.world = options.world;

  std::optional<StepDraft> draft(std::in_place, run_dir, step);
  try {
    const WriteOrders orders = orders_for(plan, 0);
    add_checksums(plan, 0, write_step_files(draft->folder(), orders, bytes_in(state, orders)));
    write_index(draft->folder(), plan.index);
    draft->publish();
  } catch (const ResourceError& e) {
    const std::string space = space_text(run_dir, static_cast<uint64_t>(plan.bytes_of(0)));
    draft.reset();
    fail<ResourceError>(
        "checkpoint of step {} was not saved: {}.{} Earlier checkpoints are as they were; free "
        "some space or choose another --run-dir",
        step, e.what(), space);
  }
  draft->settle(options.keep);
  return run_dir + "/" + step_folder_name(step);
}

}  // namespace trireme
