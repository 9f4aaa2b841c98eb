// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/same_data.h"

#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/comm/objects.h"

namespace trireme {
namespace {

// Rank → all.
struct DataOpened {
  RankFailure failure;
  std::string identity, contents;
  TRIREME_FIELDS(failure, identity, contents)
};

}  // namespace

void open_same_data(Run& run, const std::function<void(Run&)>& open) {
  Group world = run.world();
  if (world.size() == 1) return open(run);
  DataOpened mine;
  mine.failure = failure_of([&] { open(run); });
  mine.identity = run.data_identity, mine.contents = run.data_contents;
  const std::vector<DataOpened> all = all_gather_object(world, mine);
  raise(mine.failure);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].failure)
      raise({all[r].failure.kind, fmt::format("rank {}: {}", r, all[r].failure.text)});
  for (size_t r = 1; r < all.size(); ++r) {
    check<UsageError>(all[r].identity == all[0].identity,
                      "rank {} opens other data than rank 0 ({}; rank 0: {}): give all ranks the "
                      "same data",
                      r, all[r].identity, all[0].identity);
    check<UsageError>(all[r].contents == all[0].contents,
                      "rank {} opens other data than rank 0: the files have the same names and "
                      "lengths, and their contents differ; give all ranks the same files",
                      r);
  }
}

}  // namespace trireme
