// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/schedule_table.h"

#include <string>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/base/philox.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/reductions.h"
#include "trireme/pipeline/schedule/table_file.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme {
namespace {

// What a rank read.
struct TableRead {
  std::string fault;
  int64_t digest = 0;  // of its actions
  TRIREME_FIELDS(fault, digest)
};

}  // namespace

std::optional<pipeline::Schedule> schedule_table(const Config& config) {
  const auto file = config.section<ParallelismSection>().schedule_file;
  if (!file) return std::nullopt;
  return pipeline::proven_table(*file, fmt::format("parallelism.schedule_file ({})",
                                                   config.origin("parallelism.schedule_file")));
}

std::optional<pipeline::Schedule> schedule_table(const Config& config, const Group& world) {
  if (!config.section<ParallelismSection>().schedule_file) return std::nullopt;
  std::optional<pipeline::Schedule> table;
  TableRead mine;
  try {
    table = schedule_table(config);
    mine.digest = static_cast<int64_t>(stable_hash(write_table(*table)));
  } catch (const UsageError& e) {
    mine.fault = e.what();
  }
  const auto all = all_gather_object(world, mine);
  for (size_t r = 0; r < all.size(); ++r) {
    check<UsageError>(all[r].fault.empty(), "rank {}: {}", r, all[r].fault);
    check<UsageError>(all[r].digest == all[0].digest,
                      "parallelism.schedule_file ({}): {} has another table where rank {} is than "
                      "where rank 0 is: copy one of them to all hosts",
                      config.origin("parallelism.schedule_file"), table ? table->name : "", r);
  }
  return table;
}

void place_zero(const Config& config, pipeline::Schedule& schedule) {
  const auto whole = static_cast<int>(config.section<ParallelismSection>().whole_stages);
  if (whole > 0) schedule = pipeline::place_units(schedule, whole);
  const int64_t stage = config.section<ZeroSection>().stage;
  const bool tree = config.section<TrainingSection>().reproducible;
  if (stage >= 2 || (stage == 1 && tree)) schedule = pipeline::place_reductions(schedule);
}

}  // namespace trireme
