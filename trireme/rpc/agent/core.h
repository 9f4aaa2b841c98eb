// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/rpc/agent/crew.h"
#include "trireme/rpc/agent/deadlines.h"
#include "trireme/rpc/method.h"

namespace trireme::rpc::detail {

/// What all sessions of a worker share. It outlives the worker where handlers do.
struct Core {
  std::string name;
  int64_t member = 0;
  std::vector<Method> methods;
  std::shared_ptr<Carrier> carrier;                    // null: no offer has one
  std::vector<std::shared_ptr<LineWatcher>> watchers;  // it among them
  uint64_t most_unsent = 0;                            // bytes that wait to leave for one peer
  uint64_t most_waiting = 0;                           // calls to one peer that are not answered
  std::shared_ptr<Crew> crew;
  std::shared_ptr<Deadlines> deadlines;

  std::atomic<bool> leaving{false};   // calls that come are refused
  std::atomic<int64_t> made{0};       // calls of ours that are not answered
  std::atomic<int64_t> answering{0};  // calls of others that are not
};

}  // namespace trireme::rpc::detail
