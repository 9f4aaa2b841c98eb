// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/pipeline/schedule/timing.h"

// What `trireme plan schedule` says of a schedule beside its drawing.
namespace trireme {

/// The step, then a line a rank, then (where ranks have several stages) a line a stage.
std::string schedule_figures(const pipeline::Schedule& schedule, const pipeline::Timing& timing);

nlohmann::ordered_json schedule_json(const pipeline::Schedule& schedule,
                                     const pipeline::Timing& timing);

/// The schedules that there are, with their conditions and sources.
std::string schedule_list();

}  // namespace trireme
