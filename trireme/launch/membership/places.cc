// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/places.h"

#include <algorithm>

namespace trireme::launch {

Places::Places(int places) : places_(static_cast<size_t>(places)), next_id_(places) {
  for (int place = 0; place < places; ++place) {
    places_[static_cast<size_t>(place)].id = place;
    generation_.members.push_back(place);
  }
}

int64_t Places::lost(int place) {
  Place& here = places_.at(static_cast<size_t>(place));
  lost_one_ |= here.in;
  here = {next_id_++, false, false};
  return here.id;
}

void Places::ready(int place) { places_.at(static_cast<size_t>(place)).ready = true; }

std::vector<int> Places::awaited() const {
  std::vector<int> found;
  for (size_t place = 0; place < places_.size(); ++place)
    if (!places_[place].ready) found.push_back(static_cast<int>(place));
  return found;
}

std::optional<trireme::Generation> Places::next() {
  trireme::Generation next{
      generation_.number + 1, {}, lost_one_ ? generation_.number : generation_.broken};
  for (Place& here : places_)
    if (here.ready) next.members.push_back(here.id);
  if (next.members.size() < places_.size()) {
    const auto place_before = [this](int64_t id) {
      const auto& before = generation_.members;
      return std::find(before.begin(), before.end(), id) - before.begin();
    };
    std::stable_sort(next.members.begin(), next.members.end(),
                     [&](int64_t a, int64_t b) { return place_before(a) < place_before(b); });
  }
  if (next.members.empty() || next.members == generation_.members) return std::nullopt;
  for (Place& here : places_) here.in = here.ready;
  lost_one_ = false;
  generation_ = next;
  return next;
}

}  // namespace trireme::launch
