// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "trireme/base/export.h"

namespace trireme {

/// The process that made an object. A fork() gives the child copies of objects whose connections,
/// shared memory and threads are its parent's: whatever speaks for the parent holds one of these,
/// refuses its calls in the child, and leaves everything as it is when it is destroyed there.
///
/// The kernel wipes one page of ours in every child (MADV_WIPEONFORK), so that asking is a load and
/// a compare, and no fork handler is installed in the host's program. Threads: any.
class TRIREME_API ProcessMark {
 public:
  ProcessMark();

  /// False in a process that was forked after this object was made.
  bool is_here() const {
    return page_ ? page_->load(std::memory_order_relaxed) == pid_ : is_here_without_page();
  }
  /// UsageError in a forked child. `what`: "this group", "this store".
  void check(const char* what) const {
    if (!is_here()) [[unlikely]]
      refuse(what);
  }

 private:
  bool is_here_without_page() const;
  [[noreturn]] void refuse(const char* what) const;

  const std::atomic<int>* page_;  // null: this kernel wipes none
  int pid_;
};

}  // namespace trireme
