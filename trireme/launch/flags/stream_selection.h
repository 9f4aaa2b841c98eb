// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

namespace trireme::launch {

/// What --redirects and --tee choose: bit 0 is stdout, bit 1 is stderr, for every local rank ("3")
/// or for some ("0:1,1:2"; the others get 0). As torchrun's.
class TRIREME_API StreamSelection {
 public:
  enum Stream { kStdout = 1, kStderr = 2 };

  StreamSelection() = default;
  /// `flag` ("--tee") is named in the UsageError.
  static StreamSelection parse(std::string_view text, std::string_view flag);
  int at(int local_rank) const;
  bool any() const;
  /// The largest local rank named, or -1.
  int largest_rank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }

 private:
  int all_ = 0;
  std::map<int, int> by_rank_;
};

}  // namespace trireme::launch
