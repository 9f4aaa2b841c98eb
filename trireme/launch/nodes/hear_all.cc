// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/hear_all.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/nodes/patience.h"

namespace trireme::launch {

HearAll::HearAll(Store& store, std::string name, int node, int nodes)
    : store_(store), name_(std::move(name)), node_(node), nodes_(nodes) {}

std::string HearAll::key(int64_t round, int node) const {
  return fmt::format("{}/{}/{}", name_, round, node);
}

std::optional<std::vector<std::string>> HearAll::round(const std::string& ours, Deadline deadline,
                                                       const std::function<bool()>& ends) {
  store_.set(key(round_, node_), ours);
  std::vector<std::string> all;
  while (all.size() < static_cast<size_t>(nodes_)) {
    if (ends() || deadline.expired()) return std::nullopt;
    try {
      all.push_back(
          store_.get(key(round_, static_cast<int>(all.size())),
                     Deadline::after(std::min<Duration>(patience::kSlice, deadline.remaining()))));
    } catch (const Timeout&) {
    }
  }
  // Who has said this has read all of the round before.
  if (round_ > 0) store_.delete_key(key(round_ - 1, node_));
  ++round_;
  return all;
}

}  // namespace trireme::launch
