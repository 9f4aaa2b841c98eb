// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/rpc/agent/failures.h"
#include "trireme/rpc/object/objects.h"
#include "trireme/rpc/transit.h"
#include "trireme/rpc/wire/messages.h"

// What Objects keeps beside its ledger. All of it is guarded by its mutex.
namespace trireme::rpc::detail {

enum class Progress { coming, there, failed };

struct Hold {
  ObjectId object;
  uint64_t life = 0;
  std::string owner, kind, where;
  std::shared_ptr<Line> line = {};
  Progress progress = Progress::coming;
  wire::Failure error = {};  // made an exception again for each who asks: one that several threads
                             // share would have to outlive them all
  std::deque<std::function<void()>> waiting = {};
  int references = 0;
};

struct Kept {
  ObjectId object;
  std::string kind = {};  // known once it is there
  std::string where = {};
  std::shared_ptr<void> value = {};
  std::function<void(encoding::Writer&)> put = {};  // null: it does not travel
  Progress progress = Progress::coming;
  wire::Failure error = {};
  std::vector<std::function<void()>> waiting = {};
};

inline std::exception_ptr again(const wire::Failure& failure, const std::string& what) {
  return rebuilt(failure, what);
}

}  // namespace trireme::rpc::detail
