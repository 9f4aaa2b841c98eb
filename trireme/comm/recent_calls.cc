// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/recent_calls.h"

#include <algorithm>

namespace trireme::detail {
namespace {

uint64_t first_kept(const RecentCalls& calls) { return calls.last + 1 - calls.digests.size(); }

uint64_t digest(const RecentCalls& calls, uint64_t number) {
  return calls.digests[static_cast<size_t>(number - first_kept(calls))];
}

}  // namespace

std::string RecentCalls::text(uint64_t number) const {
  if (number > last || last - number >= texts.size()) return "";
  return texts[texts.size() - 1 - static_cast<size_t>(last - number)];
}

std::optional<uint64_t> first_difference(const RecentCalls& a, const RecentCalls& b) {
  const uint64_t end = std::min(a.last, b.last);
  for (uint64_t n = std::max(first_kept(a), first_kept(b)); n <= end; ++n)
    if (digest(a, n) != digest(b, n)) return n;
  return std::nullopt;
}

}  // namespace trireme::detail
