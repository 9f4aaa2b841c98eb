// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/pipeline/schedule/schedule.h"

namespace trireme {

/// The table of parallelism.schedule_file, proved; nullopt without that key. UsageError in one
/// sentence where it cannot be used.
std::optional<pipeline::Schedule> schedule_table(const Config& config);

/// The same for a run: every rank of `world` reads the file where it is, and calls this. What one
/// of them cannot use is a UsageError on all of them, and so are files of different contents.
std::optional<pipeline::Schedule> schedule_table(const Config& config, const Group& world);

/// Adds what ZeRO does to the schedule: the gathers and drops of stage 3, as
/// parallelism.whole_stages says, and where gradients are added over replicas after each backward,
/// these reductions. A table that has them keeps its own. UsageError where it cannot be done.
void place_zero(const Config& config, pipeline::Schedule& schedule);

}  // namespace trireme
