// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/places.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme::launch {

Places::Places(int places) : places_(static_cast<size_t>(places)) {
  for (int place = 0; place < places; ++place) {
    places_[static_cast<size_t>(place)].id = place;
    generation_.members.push_back(place);
  }
}

Places Places::read(std::string_view text, int places) {
  Places all(places);
  all.generation_ = decode<trireme::Generation>(text);
  Known known = decode<Known>(all.generation_.launchers);
  all.generation_.launchers.clear();
  check<Corrupt>(known.places.size() == all.places_.size(),
                 "the job's store says of {} workers that they train, of {}", known.places.size(),
                 places);
  all.places_ = std::move(known.places);
  all.lost_one_ = known.lost_one;
  all.losses_ = known.losses;
  return all;
}

std::string Places::text() const {
  trireme::Generation all = generation_;
  all.launchers = encode(Known{places_, lost_one_, losses_});
  return encode(all);
}

int64_t Places::lost(int place) {
  Place& here = places_.at(static_cast<size_t>(place));
  lost_one_ |= here.in;
  ++losses_;
  // No two places ever give one number.
  here = {here.id + static_cast<int64_t>(places_.size()), false, false};
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
      generation_.number + 1, {}, lost_one_ ? generation_.number : generation_.broken, {}};
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
