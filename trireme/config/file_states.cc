// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/file_states.h"

#include <fmt/core.h>

#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/parallelism.h"

namespace trireme {

std::string fault_of_file_states(const Config& c, int world) {
  if (!c.section<OffloadSection>().optimizer.on_disk()) return "";
  const std::string type = c.section<OptimizerSection>().type;
  const auto parallelism = c.section<ParallelismSection>();
  const bool apart = c.resolve_sharding(world).dp_shard > 1 || parallelism.tp > 1 ||
                     parallelism.pp > 1 || parallelism.cp > 1;
  if (!apart || (type != "Lamb" && type != "Lars")) return "";
  return fmt::format(
      "{}: {} measures parameters that are spread over several ranks, but with its state in a file "
      "each rank steps them at a different time: use another optimizer, or remove "
      "offload_optimizer",
      c.origin("optimizer.type"), type);
}

}  // namespace trireme
