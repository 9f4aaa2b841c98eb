// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/places.h"

#include <algorithm>
#include <set>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

constexpr int kMostLosses = 1 << 30;

}  // namespace

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
  check<Corrupt>(all.is_possible(),
                 "the job's store says of {} workers who trains together, and no "
                 "launcher can have written it",
                 all.places_.size());
  return all;
}

bool Places::is_possible() const {
  const auto count = static_cast<int64_t>(places_.size());
  if (losses_ < 0 || losses_ > kMostLosses) return false;
  int64_t losses = 0;  // each gives its place the next of the numbers that are that place's
  for (int64_t place = 0; place < count; ++place) {
    const Place& here = at(static_cast<int>(place));
    if (here.id < 0 || here.id % count != place || here.id / count > losses_) return false;
    if (here.in && !here.ready) return false;
    losses += here.id / count;
  }
  const auto& [number, members, broken, launchers] = generation_;
  const std::set<int64_t> unique(members.begin(), members.end());
  return losses == losses_ && number >= 0 && number <= 2 * losses && broken >= -1 &&
         broken <= number && !members.empty() && members.size() <= places_.size() &&
         unique.size() == members.size() &&
         std::all_of(members.begin(), members.end(), [&](int64_t id) {
           return id >= 0 && id <= at(static_cast<int>(id % count)).id;
         });
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
