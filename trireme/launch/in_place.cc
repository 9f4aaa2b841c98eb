// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/in_place.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/placement.h"

namespace trireme::launch {
namespace {

void say_gone(const Error& error) {
  log_debug("the workers are not told of each other: {}", error.what());
}

}  // namespace

InPlace::InPlace(std::unique_ptr<Store> store, int attempt,
                 const std::vector<int>& workers_of_nodes, int node)
    : store_(std::move(store)),
      attempt_(attempt),
      first_(place(workers_of_nodes, node, 0).rank),
      own_(place(workers_of_nodes, node, 0).local_world),
      all_(std::accumulate(workers_of_nodes.begin(), workers_of_nodes.end(), 0)),
      places_(all_) {}

std::string InPlace::refresh() {
  const std::string text = store_->try_get(generations::newest(attempt_)).value_or("");
  if (!text.empty()) places_ = Places::read(text, all_);
  return text;
}

template <class Change>
std::optional<trireme::Generation> InPlace::change(const Change& change) {
  while (true) {
    const std::string before = refresh();
    if (!change()) return std::nullopt;
    auto next = places_.next();
    const std::string after = places_.text();
    if (store_->compare_set(generations::newest(attempt_), before, after) == after)
      return next ? std::move(next) : places_.generation();
  }
}

bool InPlace::can_go_on(const std::vector<int>& living) try {
  refresh();
  std::vector<int> there;
  for (int place = 0; place < all_; ++place)
    if (place < first_ || place >= first_ + own_) there.push_back(place);
  for (const int local_rank : living) there.push_back(first_ + local_rank);
  std::vector<std::string> keys;
  for (const int place : there)
    keys.push_back(generations::able(attempt_, places_.member_at(place)));
  const std::vector<std::string> missing = store_->missing(keys);
  if (missing.size() == keys.size()) return false;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool able = std::find(missing.begin(), missing.end(), keys[i]) == missing.end();
    // One that was started later has nothing yet, and waits for the others.
    if (!able && !places_.is_new(there[i])) return false;
  }
  return true;
} catch (const Error& error) {
  say_gone(error);
  return false;
}

bool InPlace::lost(int local_rank, int left) try {
  const int most = places_.losses() + left;
  return change([&] {
           if (places_.losses() >= most) return false;
           places_.lost(first_ + local_rank);
           return true;
         })
      .has_value();
} catch (const Error& error) {
  say_gone(error);
  return false;
}

std::vector<int> InPlace::awaited() const {
  std::vector<int> own = places_.awaited();
  std::erase_if(own, [this](int place) { return place < first_ || place >= first_ + own_; });
  return own;
}

int InPlace::take_in() try {
  std::vector<int> ready;
  for (const int place : awaited())
    if (store_->try_get(generations::ready(attempt_, places_.member_at(place))))
      ready.push_back(place);
  if (ready.empty()) return 0;
  const auto next = change([&] {
    for (const int place : ready) places_.ready(place);
    return true;
  });
  return static_cast<int>(next->members.size());
} catch (const Error& error) {
  say_gone(error);
  return 0;
}

int InPlace::losses() try {
  refresh();
  return places_.losses();
} catch (const Error& error) {
  say_gone(error);
  return places_.losses();
}

}  // namespace trireme::launch
