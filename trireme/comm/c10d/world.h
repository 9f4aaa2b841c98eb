// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/c10d/failure_monitor.h"
#include "trireme/comm/registry.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// State that a group shares with the groups made of it.
struct World {
  std::shared_ptr<Store> store;           // for the world's keys alone; to be cloned
  std::unique_ptr<FailureMonitor> watch;  // null in a world of one
  int rank = 0;
};

inline std::shared_ptr<World> make_world(const BackendSpec& spec, const std::string& backend,
                                         Deadline deadline) {
  auto world = std::make_shared<World>();
  world->rank = spec.rank;
  if (spec.size == 1) return world;
  world->store = std::make_shared<PrefixStore>(spec.store, backend + "/" + spec.name);
  world->watch =
      std::make_unique<FailureMonitor>(world->store->clone(deadline), spec.rank, spec.size);
  return world;
}

}  // namespace trireme::detail
