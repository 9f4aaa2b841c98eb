// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/rpc/rpc.h"

namespace trireme::rpc {

/// What an actor may ask for as its constructor's first parameter, `const rpc::ActorPlace&`.
struct ActorPlace {
  Worker worker;      // where it lives: to call others. Kept in the actor, it ends with it
  std::string group;  // its name
  int rank = 0;       // in the group
  int size = 1;       // of the group
  int restarts = 0;   // of this actor, until now
};

}  // namespace trireme::rpc
