// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/in_place.h"

#include <utility>

namespace trireme::launch {

InPlace::InPlace(std::unique_ptr<Store> store, int attempt, int places)
    : store_(std::move(store)), attempt_(attempt), places_(places) {}

bool InPlace::can_go_on(const std::vector<int>& places) const {
  bool any = false;
  for (const int place : places) {
    const bool able =
        store_->try_get(generations::able(attempt_, places_.member_at(place))).has_value();
    any |= able;
    // One that was started later has nothing yet, and waits for the others.
    const bool is_new = places_.member_at(place) != place;
    if (!able && !is_new) return false;
  }
  return any;
}

void InPlace::lost(int place) {
  places_.lost(place);
  if (const auto next = places_.next()) announce(*next);
}

int InPlace::take_in() {
  for (const int place : places_.awaited())
    if (store_->try_get(generations::ready(attempt_, places_.member_at(place))))
      places_.ready(place);
  const auto next = places_.next();
  if (!next) return 0;
  announce(*next);
  return static_cast<int>(next->members.size());
}

void InPlace::announce(const trireme::Generation& generation) {
  store_->set(generations::newest(attempt_), encode(generation));
}

}  // namespace trireme::launch
