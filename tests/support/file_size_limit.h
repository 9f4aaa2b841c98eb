// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include "trireme/base/check.h"

namespace trireme::testing {

/// What `ulimit -f` does, for as long as the object lives. In a child of its own: a write beyond
/// the limit that is not refused ends the process.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    if (::getrlimit(RLIMIT_FSIZE, &before_) != 0) fail<Error>("getrlimit: {}", errno_text());
    const rlimit limit{bytes, before_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) fail<Error>("setrlimit: {}", errno_text());
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace trireme::testing
