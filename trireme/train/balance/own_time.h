// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// Time in which the calling thread ran or wanted to run (it was in a queue for a CPU), without
/// that in which it slept: Linux's schedstat; wall time where there is none.
TRIREME_API int64_t runnable_ns();

/// A rank's own time: that in which it computed or waited for a CPU, without that in which it
/// waited for others, wherever it did (inside backward, too). Not CPU time: who shares a core with
/// somebody is slower. One thread.
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
  /// Since the last take().
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
