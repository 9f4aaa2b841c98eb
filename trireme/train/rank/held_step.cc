// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/held_step.h"

#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/comm/objects.h"
#include "trireme/train/await_saver.h"

namespace trireme {
namespace {

struct Found {
  RankFailure failure;
  std::string save;     // "": no step
  bool behind = false;  // rank 0: the disk has a newer one
  TRIREME_FIELDS(failure, save, behind)
};

}  // namespace

std::shared_ptr<HeldStep> held_step_to_resume(
    const std::function<std::vector<HandedSnapshot>()>& take, const std::string& steps,
    Group world) {
  const auto rank = static_cast<size_t>(world.rank()), ranks = static_cast<size_t>(world.size());
  std::shared_ptr<HeldStep> step;
  Found mine;
  mine.failure = failure_of([&] {
    step = held_step_of(take(), steps);
    if (!step) return;
    mine.save = step->note().save;
    step->verify(rank, ranks);
    if (rank == 0) mine.behind = is_behind_the_disk(step->note());
  });
  const std::vector<Found> all = all_gather_object(world, mine);
  std::string why;
  bool any = false, same = true;
  for (size_t r = 0; r < all.size(); ++r) {
    any = any || all[r].failure || !all[r].save.empty();
    same = same && all[r].save == all[0].save;
    if (why.empty() && all[r].failure) why = fmt::format("rank {}: {}", r, all[r].failure.text);
  }
  if (!any) return nullptr;
  if (why.empty() && !same) why = "not all ranks were given the same snapshots";
  if (why.empty() && !all[0].behind) return step;
  if (rank == 0) {
    if (!why.empty())
      log_warn(
          "the step in the memory of the workers before is not taken: {}. The checkpoints in "
          "{} are",
          why, steps);
    await_saver(steps);
  }
  return nullptr;
}

}  // namespace trireme
