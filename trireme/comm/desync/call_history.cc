// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/call_history.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/base/philox.h"

namespace trireme::detail {

void CallHistory::add(const flight::CallWords& words, CallSite site) {
  ToldCall& t = calls_[count_ % kKept];
  t = tell(++count_, words, site);
  hash_ = mix64(hash_ ^ t.digest);
}

void CallHistory::add_parts(const std::vector<int64_t>& sends,
                            const std::vector<int64_t>& expects) {
  parts_[++parts_count_ % kParts] = {count_, sends, expects};
}

uint64_t CallHistory::number_of(Token token) const {
  const uint64_t count = count_;
  for (uint64_t n = count; token.kind && n > 0 && count - n < kKept; --n)
    if (same_call(tokens_[(n - 1) % kKept], token)) return n;
  return 0;
}

const CallHistory::Parts* CallHistory::parts_of(uint64_t number) const {
  for (const Parts& p : parts_)
    if (p.number == number) return &p;
  return nullptr;
}

RecentCalls CallHistory::recent() const {
  const uint64_t count = count_, kept = std::min<uint64_t>(count, kKept);
  RecentCalls mine{count, {}, {}};
  for (uint64_t n = count - kept + 1; n <= count; ++n) {
    mine.digests.push_back(at(n).digest);
    if (count - n < kTexts) mine.texts.push_back(text_of(at(n)));
  }
  return mine;
}

std::string CallHistory::text(uint64_t number) const {
  return fmt::format("call {} of group {}, {}", number, group_, text_of(at(number)));
}

}  // namespace trireme::detail
