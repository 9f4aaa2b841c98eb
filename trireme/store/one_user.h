// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "trireme/base/check.h"

namespace trireme::detail {

/// One thread at a time per store object: a second one is told.
class OneUser {
 public:
  explicit OneUser(std::atomic<bool>& in_use) : in_use_(in_use) {
    check<UsageError>(!in_use_.exchange(true),
                      "two threads use one store object at once: give each its own clone()");
  }
  ~OneUser() { in_use_ = false; }
  OneUser(const OneUser&) = delete;

 private:
  std::atomic<bool>& in_use_;
};

}  // namespace trireme::detail
