// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// Time for which the calling thread ran or waited for a CPU, excluding sleep: Linux's schedstat,
/// or wall time where that is missing.
TRIREME_API int64_t runnable_ns();

/// Measures a rank's own time: time spent computing or waiting for a CPU, but not waiting for other
/// ranks, including inside backward. This is not CPU time, because a rank that shares a core is
/// slower. Use from one thread.
class OwnTime {
 public:
  using NowNs = std::function<int64_t()>;
  explicit OwnTime(NowNs now = runnable_ns) : now_(std::move(now)) {}

  void computing() {
    if (since_ < 0) since_ = now_();
  }
  void waiting() {
    if (since_ >= 0) sum_ += now_() - since_;
    since_ = -1;
  }
  /// Returns the seconds since the last take().
  double take() {
    if (since_ >= 0) {
      const int64_t now = now_();
      sum_ += now - since_;
      since_ = now;
    }
    return static_cast<double>(std::exchange(sum_, 0)) * 1e-9;
  }

 private:
  NowNs now_;
  int64_t sum_ = 0, since_ = -1;
};

}  // namespace trireme
