// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/server/strangers.h"

namespace trireme::net {

void Strangers::put(uint64_t id, Standing standing) {
  remove(id);
  standing_[id] = standing;
  order_.emplace(standing, id);
}

void Strangers::remove(uint64_t id) {
  auto at = standing_.find(id);
  if (at == standing_.end()) return;
  order_.erase({at->second, id});
  standing_.erase(at);
}

std::optional<uint64_t> Strangers::first_to_go() const {
  if (order_.empty()) return std::nullopt;
  return order_.begin()->second;
}

}  // namespace trireme::net
