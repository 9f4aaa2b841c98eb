// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/rpc/rpc.h"

namespace trireme::rpc {

/// What an actor may ask for as its constructor's first parameter, `const rpc::ActorPlace&`.
struct ActorPlace {
  std::string group;  // its name
  int rank = 0;       // in the group
  int size = 1;       // of the group
  int restarts = 0;   // of this actor, until now
  std::weak_ptr<detail::Agent> at = {};

  /// The worker that it lives at, to call others. An actor keeps the place rather than the worker,
  /// which would not end before it. Aborted: the worker is gone.
  TRIREME_API Worker worker() const;
};

}  // namespace trireme::rpc
