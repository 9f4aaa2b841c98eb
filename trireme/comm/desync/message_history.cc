// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/message_history.h"

#include <fmt/core.h>

#include "trireme/base/philox.h"
#include "trireme/comm/desync/call_history.h"

namespace trireme::detail {

Waiting PostedMessage::waiting(const std::string& group) const {
  Waiting w{
      number ? kind : WaitKind::none,
      group,
      {},
      number,
      words.tag,
      fmt::format("{} with tag {} of group {}", text_of(tell(0, words, site)), words.tag, group),
      stable_hash({static_cast<uint64_t>(words.dtype), words.count})};
  if (number) w.ranks.push_back(peer);
  return w;
}

void MessageHistory::add(WaitKind kind, Token token, const flight::CallWords& words, CallSite site,
                         int peer) {
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    if (peer == kAnySource) {
      counts_.any_source_tags.insert(words.tag);
    } else {
      const std::pair key{peer, words.tag};
      if (!last_pair_ || last_key_ != key) {
        last_key_ = key;
        last_pair_ = &counts_.messages[key];
      }
      number = kind == WaitKind::send ? ++last_pair_->first : ++last_pair_->second;
      if (counts_.messages.size() > kMessagesKept) {
        counts_.messages.clear();
        counts_.all_messages = false;
        last_pair_ = nullptr;
      }
    }
  }
  if (token.kind) latest_[++count_ % kKept] = {token, kind, words, site, number, peer};
}

const PostedMessage* MessageHistory::find(Token token) const {
  for (const PostedMessage& m : latest_)
    if (token.kind && same_call(m.token, token)) return &m;
  return nullptr;
}

GroupCalls MessageHistory::counts() {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace trireme::detail
