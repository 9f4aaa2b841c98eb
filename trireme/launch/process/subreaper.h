// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/prctl.h>

namespace trireme::launch {

/// Makes this process the one that orphans of the job come to, for as long as it lives.
class SubreaperScope {
 public:
  SubreaperScope() {
    ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~SubreaperScope() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }
  SubreaperScope(const SubreaperScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace trireme::launch
