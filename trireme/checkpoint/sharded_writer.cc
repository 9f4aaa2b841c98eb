// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/sharded_writer.h"

#include "trireme/base/trace.h"
#include "trireme/checkpoint/save/step_save.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/objects.h"

namespace trireme {

std::string save_sharded_step(const std::string& run_dir, int64_t step, const StateWalk& walk,
                              Group group, const ShardedSaveOptions& options) {
  Span span("checkpoint", "save");
  StepSave save(run_dir, step, group, options);
  save.agree(walk);
  const auto all = gather_object(group, save.write(bytes_in(save.state(), save.orders())), 0);
  raise(broadcast_object(group, group.rank() == 0 ? save.publish(all) : RankFailure{}, 0));
  return run_dir + "/" + step_folder_name(step);
}

}  // namespace trireme
