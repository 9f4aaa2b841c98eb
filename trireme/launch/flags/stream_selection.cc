// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/flags/stream_selection.h"

#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

int parse_mask(std::string_view text, std::string_view whole, std::string_view flag) {
  auto mask = parse_int(text);
  check<UsageError>(
      mask && *mask >= 0 && *mask <= 3,
      "{} {}: '{}' is not 0 (none), 1 (stdout), 2 (stderr) or 3 (both): write one for "
      "all ranks, or RANK:VALUE pairs such as 0:1,1:2",
      flag, whole, text);
  return static_cast<int>(*mask);
}

}  // namespace

StreamSelection StreamSelection::parse(std::string_view text, std::string_view flag) {
  StreamSelection s;
  if (text.find(':') == std::string_view::npos) {
    s.all_ = parse_mask(text, text, flag);
    return s;
  }
  for (auto pair : split(text, ',')) {
    auto colon = pair.find(':');
    check<UsageError>(colon != std::string_view::npos,
                      "{} {}: '{}' is not a RANK:VALUE pair, as in 0:1,1:2", flag, text, pair);
    auto rank = parse_int(pair.substr(0, colon));
    check<UsageError>(rank && *rank >= 0, "{} {}: '{}' is not a local rank (0, 1, …)", flag, text,
                      pair.substr(0, colon));
    bool fresh =
        s.by_rank_.emplace(static_cast<int>(*rank), parse_mask(pair.substr(colon + 1), text, flag))
            .second;
    check<UsageError>(fresh, "{} {}: local rank {} is named twice", flag, text, *rank);
  }
  return s;
}

int StreamSelection::at(int local_rank) const {
  auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

bool StreamSelection::any() const {
  if (all_) return true;
  for (auto [rank, mask] : by_rank_)
    if (mask) return true;
  return false;
}

}  // namespace trireme::launch
