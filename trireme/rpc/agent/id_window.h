// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace trireme::rpc::detail {

/// Which numbers were seen, of some that come nearly in order from 0 on: kept as the ranges that
/// they fill, of which there are as many as numbers are late. More than kMostRanges are not taken,
/// so that its memory is bounded whatever comes.
class IdWindow {
 public:
  static constexpr size_t kMostRanges = 4096;

  /// False: it was seen before, or there are too many gaps.
  bool take(uint64_t id) {
    auto after = ranges_.upper_bound(id);
    const auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
    if (before != ranges_.end() && id <= before->second) return false;
    const bool joins_before = before != ranges_.end() && before->second + 1 == id;
    const bool joins_after = after != ranges_.end() && after->first == id + 1;
    if (joins_before && joins_after) {
      before->second = after->second;
      ranges_.erase(after);
    } else if (joins_before) {
      before->second = id;
    } else if (joins_after) {
      const uint64_t last = after->second;
      ranges_.erase(after);
      ranges_.emplace(id, last);
    } else {
      if (ranges_.size() >= kMostRanges) return false;
      ranges_.emplace(id, id);
    }
    return true;
  }
  /// Every number below this one was seen, and this one was not.
  uint64_t next() const {
    return ranges_.empty() || ranges_.begin()->first > 0 ? 0 : ranges_.begin()->second + 1;
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // first → last
};

}  // namespace trireme::rpc::detail
