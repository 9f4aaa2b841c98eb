// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "trireme/base/check.h"
#include "trireme/base/process/process_mark.h"

namespace trireme::detail {

/// Of a store object: who may use it.
struct StoreUse {
  std::atomic<bool> in_use{false};
  ProcessMark made_in;  // a child would write into its parent's connection

  bool is_of_this_process() const { return made_in.is_here(); }
};

/// One thread at a time per store object, of the process that made it: another one is told.
class OneUser {
 public:
  explicit OneUser(StoreUse& use) : in_use_(use.in_use) {
    use.made_in.check("this store");
    check<UsageError>(!in_use_.exchange(true),
                      "two threads use one store object at once: give each its own clone()");
  }
  ~OneUser() { in_use_ = false; }
  OneUser(const OneUser&) = delete;

 private:
  std::atomic<bool>& in_use_;
};

}  // namespace trireme::detail
