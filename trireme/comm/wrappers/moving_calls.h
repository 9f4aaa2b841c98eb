// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::detail {

/// How a wrapper that makes calls of its own (copies, plans) moves them on: one body at a time, and
/// nothing more after the first that failed, which every later one throws again. The inner backend
/// waits inside of a body, and what it then advances is the same wrapper. One thread.
class MovingCalls {
 public:
  enum class UsageErrors {
    end_all,     // a body that threw one has left its call half made
    are_of_one,  // the wrapper keeps it with its call, and the group goes on
  };
  explicit MovingCalls(UsageErrors usage_errors) : usage_errors_(usage_errors) {}

  bool moving() const { return moving_; }
  bool failed() const { return failure_ != nullptr; }
  void fail(std::exception_ptr failure) { failure_ = std::move(failure); }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  template <class Body>
  void move(const Body& body) {
    rethrow();
    const Under under(moving_);
    try {
      body();
    } catch (const UsageError&) {
      if (usage_errors_ == UsageErrors::end_all) failure_ = std::current_exception();
      throw;
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

 private:
  struct Under {
    explicit Under(bool& m) : moving(m) { moving = true; }
    ~Under() { moving = false; }
    bool& moving;
  };
  const UsageErrors usage_errors_;
  std::exception_ptr failure_;
  bool moving_ = false;
};

}  // namespace trireme::detail
