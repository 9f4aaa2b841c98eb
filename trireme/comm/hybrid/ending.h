// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/comm/c10d/failure_monitor.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// How a hybrid group ends: the first cause that any of its ranks found, the same on all of them
/// and in the group's own numbering. The inner groups have other numberings, and each sees only
/// some of the ranks. Used by the group's thread.
class Ending {
 public:
  /// `store` is the group's. A world of one rank has no ending.
  Ending(Store& store, int rank, int size, Deadline deadline);
  ~Ending();

  /// Whether another rank has reported a cause, or a rank is gone.
  bool is_known() const { return known_.load(std::memory_order_acquire); }
  /// The cause. Valid once it is known.
  Failure cause() const;
  /// Notifies the others and returns the first cause, which may be a different one.
  Failure tell(const Failure& found);
  /// As tell(), for a failure that an inner group has seen: a rank that knows more may report
  /// first. If a rank was lost, a will soon reports it.
  Failure explain(const Failure& seen);

  /// Publishes that this rank waits in its collective `call`, for the others' timeouts.
  void say(uint64_t call, const std::string& text);
  /// Returns a Failure that names the ranks missing from `call`.
  Failure timed_out(uint64_t call, const std::string& text, Duration waited);

  /// Stops listening. in_order: the others are notified that this rank left.
  void leave(bool in_order);

 private:
  const int rank_, size_;
  std::atomic<bool> known_{false};
  mutable std::mutex mutex_;
  Failure cause_;
  std::unique_ptr<FailureMonitor> watch_;
};

}  // namespace trireme::detail
