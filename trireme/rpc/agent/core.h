// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/process/signals.h"
#include "trireme/rpc/agent/call_board.h"
#include "trireme/rpc/agent/call_counts.h"
#include "trireme/rpc/agent/crew.h"
#include "trireme/rpc/agent/deadlines.h"
#include "trireme/rpc/method.h"

namespace trireme::rpc::detail {

class Agent;

/// Names of a worker's groups of actors that are not ended.
class GroupNames {
 public:
  /// An empty name becomes `otherwise`, or the first of `otherwise`-2, … that is free. UsageError:
  /// another group has the name.
  void take(std::string& name, const std::string& otherwise) {
    std::lock_guard lock(mutex_);
    if (name.empty()) {
      name = otherwise;
      for (int i = 2; names_.contains(name); ++i) name = fmt::format("{}-{}", otherwise, i);
    }
    check<UsageError>(names_.insert(name).second,
                      "spawn: this worker has a group '{}' already: give each its own name, or end "
                      "the other first",
                      name);
  }
  void release(const std::string& name) {
    std::lock_guard lock(mutex_);
    names_.erase(name);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

/// What all sessions of a worker share. It outlives the worker where handlers do.
struct Core {
  std::string name;
  int64_t member = 0;
  std::vector<Method> methods;
  std::shared_ptr<Carrier> carrier;                    // null: no offer has one
  std::vector<std::shared_ptr<LineWatcher>> watchers;  // it among them
  uint64_t most_unsent = 0;                            // bytes that wait to leave for one peer
  uint64_t most_waiting = 0;                           // calls to one peer that are not answered
  MethodCounts counts;
  std::vector<CallCounts*> answered;  // of `methods`
  std::unique_ptr<CallBoard> board;
  std::optional<SignalEnrolment> written_down;  // the board; after it
  std::shared_ptr<Objects> objects;
  std::shared_ptr<Crew> crew;
  std::shared_ptr<Deadlines> deadlines;
  std::weak_ptr<Agent> agent;  // before its first call comes
  const std::shared_ptr<GroupNames> groups = std::make_shared<GroupNames>();

  std::atomic<bool> shuts_down{false};
  std::atomic<uint64_t> links{0};     // sessions until now
  std::atomic<bool> leaving{false};   // calls that come are refused
  std::atomic<int64_t> made{0};       // calls of ours that are not answered
  std::atomic<int64_t> answering{0};  // calls of others that are not
};

}  // namespace trireme::rpc::detail
