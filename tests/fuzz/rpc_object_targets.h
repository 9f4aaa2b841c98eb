// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/error.h"
#include "trireme/rpc/object/ledger.h"
#include "trireme/rpc/object/messages.h"

// What other workers say of references, and what the books of an owner make of it.
namespace trireme::fuzz {

/// One worker, numbered 1, whose peers 2 and 3 say what the bytes say: a byte for what it is and
/// who says it, a byte for its length, the arguments of the call.
class Bookkeeper {
 public:
  using Ledger = rpc::detail::Ledger;

  Bookkeeper() {
    for (int peer = 0; peer < 2; ++peer) open(peer);
  }

  void hear(uint8_t what, std::string_view arguments) {
    const int peer = what >> 7;
    const Ledger::Link link = links_[peer];
    encoding::Reader reader(arguments);
    try {
      rpc::detail::ObjectId object;
      uint64_t number = 0;
      switch (what & 7) {
        case 0:
          read(reader, object, number);
          ledger_.claimed(object, link, number);
          break;
        case 1:
          read(reader, object, number);
          ledger_.released(object, link, number);
          break;
        case 2:
          read(reader, number);
          ledger_.settled(link, number);
          break;
        case 3:
          withdraw(reader, link);
          break;
        case 4: {
          rpc::detail::MakerHead head;
          reader.get(head);  // the constructor's arguments follow
          ledger_.make_for(head.object, link, head.life);
          break;
        }
        case 5:
          come(reader, link, arguments);
          break;
        case 6:
          pass(reader, link);
          break;
        case 7:
          ledger_.lost(link);
          open(peer);
          break;
      }
    } catch (const Corrupt&) {
    }
    act();
  }

  /// All let go of all, and everybody is gone. False: something is left.
  bool ends() {
    for (const auto& [object, life] : uses_) ledger_.drop(object, life);
    for (int peer = 0; peer < 2; ++peer) ledger_.lost(links_[peer]);
    act();
    for (const Ledger::Life life : asked_) ledger_.answered(life, false);
    return ledger_.owned() + ledger_.held() + ledger_.passed() + ledger_.marks() == 0;
  }

 private:
  template <class... T>
  void read(encoding::Reader& reader, T&... values) {
    (reader.get(values), ...);
    if (!reader.done()) encoding::left_over();
  }
  void open(int peer) {
    links_[peer] = ++opened_;
    ledger_.opened(links_[peer], 2 + peer);
  }
  void withdraw(encoding::Reader& reader, Ledger::Link link) {
    std::vector<uint64_t> tokens;
    bool may_run = false;
    read(reader, tokens, may_run);
    const auto unread = ledger_.withdraw(link, tokens, may_run);
    for (const uint64_t token : unread)
      if (std::find(tokens.begin(), tokens.end(), token) == tokens.end())
        throw std::logic_error("what nobody asked for is withdrawn");
  }
  void come(encoding::Reader& reader, Ledger::Link link, std::string_view arguments) {
    const auto passed = rpc::detail::get_reference(reader);
    if (!passed) return;
    if (!reader.done()) encoding::left_over();
    encoding::Writer writer;
    rpc::detail::put_reference(writer, *passed);
    if (writer.take() != arguments)
      throw std::logic_error("references are written otherwise than they are read");
    if (const auto life = ledger_.read(passed->object, link, passed->token))
      uses_.emplace_back(passed->object, *life);
  }
  void pass(encoding::Reader& reader, Ledger::Link link) {
    std::optional<uint64_t> answer_to;
    read(reader, answer_to);
    if (uses_.empty()) uses_.emplace_back(ledger_.own(), 0);
    const auto& [object, life] = uses_[answer_to.value_or(0) % uses_.size()];
    ledger_.pass(object, life, link, answer_to);
    ledger_.given_up(link, answer_to.value_or(0) / 2);
  }
  void act() {
    for (const auto& act : ledger_.take())
      if (const auto* claim = std::get_if<Ledger::Claim>(&act)) {
        asked_.push_back(claim->life);
        ledger_.claims(claim->life, links_[claim->life % 2]);
        if (claim->life % 3 == 0) ledger_.answered(claim->life, true);
      }
  }

  Ledger ledger_{1};
  Ledger::Link links_[2]{};
  Ledger::Link opened_ = 0;
  std::vector<std::pair<rpc::detail::ObjectId, Ledger::Life>> uses_;
  std::vector<Ledger::Life> asked_;
};

inline void rpc_references(std::string_view bytes) {
  Bookkeeper keeper;
  while (bytes.size() >= 2) {
    const auto what = static_cast<uint8_t>(bytes[0]), length = static_cast<uint8_t>(bytes[1]);
    bytes.remove_prefix(2);
    const std::string_view arguments = bytes.substr(0, length);
    bytes.remove_prefix(arguments.size());
    keeper.hear(what, arguments);
  }
  if (!keeper.ends()) throw std::logic_error("something is referred to though all are gone");
}

}  // namespace trireme::fuzz
