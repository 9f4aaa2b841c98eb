// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/data/position.h"
#include "trireme/tensor/state.h"

namespace trireme {

class HeldStep;

/// What a checkpoint says of its run's place in the data. It is read before the run is built,
/// because steps, epochs and schedules are counted from it.
struct DataPlace {
  std::string folder;                // of the step
  std::optional<DataOrigin> origin;  // nothing: the run read no data, or an older version saved it
  int64_t samples_per_step = 0;      // 0: it does not say
  std::string contents;              // Run::data_contents; "": it does not say
};

/// Of a run or step folder. Every rank calls it; rank 0 reads.
DataPlace data_place_of(const std::string& path, const Group& world);
/// Of a step in memory, whose name is the folder's. Every rank has it.
DataPlace data_place_of(const HeldStep& step);

/// The value under which Run::data_contents is saved, once for all of a run's updates. A run that
/// goes on compares it, and does not load it.
inline constexpr const char* kDataContents = "data.contents";

/// Asks for the values of a place by the names under which it is saved. Corrupt: there is no such
/// place.
void set_data_origin(DataOrigin& origin, const std::function<int64_t(const char* name)>& value_of);
/// Saves a place; loads nothing.
void show_data_origin(StateVisitor& visitor, DataOrigin origin);
/// The names of the values that show_data_origin() saves.
std::vector<std::string> data_origin_names();

}  // namespace trireme
