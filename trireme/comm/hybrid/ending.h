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

/// How a hybrid group ends: the first cause that any of its ranks found, equal on all of them and
/// in the group's own numbers. The groups that it stands on number their ranks in their own ways,
/// and each hears of a part of the ranks only. Used by the group's thread.
class Ending {
 public:
  /// `store`: the group's. A world of one has no ending.
  Ending(Store& store, int rank, int size, Deadline deadline);
  ~Ending();

  /// Whether another rank has told a cause, or a rank is gone.
  bool is_known() const { return known_.load(std::memory_order_acquire); }
  /// Once it is.
  Failure cause() const;
  /// Tells the others; the first cause, which may be another one.
  Failure tell(const Failure& found);
  /// tell(), for what one of the groups below has seen: whoever knows more may come first. Where a
  /// rank was lost, somebody's last will soon says so.
  Failure explain(const Failure& seen);

  /// That this rank waits in its collective `call`, for the others' timeouts.
  void say(uint64_t call, const std::string& text);
  /// Names the ranks that did not come to `call`.
  Failure timed_out(uint64_t call, const std::string& text, Duration waited);

  /// No more news. in_order: the others learn that this rank left.
  void leave(bool in_order);

 private:
  const int rank_, size_;
  std::atomic<bool> known_{false};
  mutable std::mutex mutex_;
  Failure cause_;
  std::unique_ptr<FailureMonitor> watch_;
};

}  // namespace trireme::detail
