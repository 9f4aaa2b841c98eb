// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"

// Which rank this thread works for, for log lines, traces and error texts only. Never used to
// decide.
namespace trireme {

TRIREME_API void set_thread_rank(int rank);  // -1: none
TRIREME_API int thread_rank();               // of this thread, else of the process ($RANK), else -1
TRIREME_API std::string rank_label();        // "[rank 3] " or ""

class ThreadRankScope {
 public:
  explicit ThreadRankScope(int rank) : before_(thread_rank()) { set_thread_rank(rank); }
  ~ThreadRankScope() { set_thread_rank(before_); }
  ThreadRankScope(const ThreadRankScope&) = delete;

 private:
  int before_;
};

}  // namespace trireme
