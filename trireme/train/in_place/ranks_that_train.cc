// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/ranks_that_train.h"

#include <bit>

#include "trireme/config/sections/elastic.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"

namespace trireme {

int ranks_that_train(const Config& config, int all, int there) {
  if (there >= all) return all;
  const auto parallelism = config.section<ParallelismSection>();
  const bool halves = config.section<TrainingSection>().reproducible;
  const bool sharded = config.section<ZeroSection>().stage > 0;
  const bool even = sharded && config.section<ElasticSection>().batch == "keep";
  const int64_t micro_batches = even ? config.resolve_batches(all).micro_batches() : 0;
  const Sharding whole = config.resolve_sharding(all);
  const int64_t unit = parallelism.dp_replicate > 0 ? whole.dp_replicate
                       : whole.dp_shard < all       ? whole.dp_shard
                                                    : 1;
  for (int ranks = there; ranks > 0; --ranks) {
    if (halves && !std::has_single_bit(static_cast<unsigned>(ranks))) continue;
    if (sharded && ranks % unit != 0) continue;
    if (even && micro_batches % ranks != 0) continue;
    return ranks;
  }
  return 0;
}

}  // namespace trireme
