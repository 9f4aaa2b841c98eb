// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/actor/turns.h"

#include <fmt/format.h>

#include <charconv>

namespace trireme::rpc::detail {
namespace {

constexpr size_t kDigits = 16;
constexpr size_t kSuffix = 2 + kDigits + 1 + kDigits;  // " #<actor>.<ticket>"

bool read_hex(const char* from, uint64_t& number) {
  const auto read = std::from_chars(from, from + kDigits, number, 16);
  return read.ec == std::errc() && read.ptr == from + kDigits;
}

}  // namespace

std::string turn_text(const std::string& method, const Turn& turn) {
  return fmt::format("{} #{:016x}.{:016x}", method, turn.actor, turn.ticket);
}

std::optional<Turn> turn_of(const wire::Link& link) {
  if (link.method.size() < kSuffix) return {};
  const char* const suffix = link.method.data() + link.method.size() - kSuffix;
  Turn turn;
  if (suffix[0] != ' ' || suffix[1] != '#' || suffix[2 + kDigits] != '.' ||
      !read_hex(suffix + 2, turn.actor) || !read_hex(suffix + 3 + kDigits, turn.ticket))
    return {};
  return turn;
}

std::string method_without_turn(const wire::Link& link) {
  return turn_of(link) ? link.method.substr(0, link.method.size() - kSuffix) : link.method;
}

std::string shown_turns(std::vector<wire::Link> chain) {
  for (wire::Link& link : chain) link.method = method_without_turn(link);
  return wire::shown(chain);
}

std::optional<Origin> origin_in(const std::vector<wire::Link>& chain, const std::string& worker,
                                const Turn& turn) {
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    if (chain[i].worker != worker || turn_of(chain[i]) != turn) continue;
    const auto first = turn_of(chain[i + 1]);
    return Origin{i, first ? first->ticket : 0, i + 2 == chain.size()};
  }
  return {};
}

}  // namespace trireme::rpc::detail
