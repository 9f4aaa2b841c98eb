// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/stall_watch.h"

#include <algorithm>
#include <exception>

#include "trireme/base/log.h"

namespace trireme::detail {
namespace {

constexpr size_t kGroupsSaid = 4;  // a board takes records of some kilobytes

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

std::vector<std::optional<RecentCalls>> StallWatch::tell(const std::string& group,
                                                         const RecentCalls& mine) {
  std::lock_guard lock(mutex_);
  try {
    if (!board_) return {};
    if (own_.size() >= kGroupsSaid && !own_.count(group)) own_.clear();
    const auto [at, is_new] = own_.try_emplace(group);
    if (is_new || at->second.last != mine.last) {
      at->second = mine;
      board_->say(encode(own_));
    }
    std::vector<std::optional<RecentCalls>> said;
    for (const std::string& bytes : board_->heard()) {
      said.emplace_back();
      if (bytes.empty()) continue;
      Record record = decode<Record>(bytes);
      const auto theirs = record.find(group);
      // Digests are those of the last calls: no more of them than calls.
      if (theirs != record.end() && theirs->second.digests.size() <= theirs->second.last)
        said.back() = std::move(theirs->second);
    }
    return said;
  } catch (const std::exception& e) {  // whoever keeps it has left, or is gone: others tell of that
    log_debug("ranks cannot compare any more what they wait in: {}", e.what());
    board_.reset();
    return {};
  }
}

void StallWatch::sweep() {
  std::lock_guard lock(mutex_);
  if (board_) board_->sweep();
}

}  // namespace trireme::detail
