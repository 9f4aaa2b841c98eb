// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/told_call.h"

#include <fmt/core.h>

#include <cstring>
#include <string_view>

#include "trireme/base/philox.h"
#include "trireme/comm/flight/call_text.h"

namespace trireme::detail {

ToldCall tell(uint64_t seq, const flight::CallWords& w, CallSite at) {
  ToldCall t{};
  t.seq = seq;
  t.count = w.count;
  t.root = w.root;
  t.op = static_cast<uint8_t>(w.op);
  t.dtype = static_cast<uint8_t>(w.dtype);
  t.red = static_cast<uint8_t>(w.red);
  // Parts of an all_to_all may differ between ranks.
  t.digest = stable_hash({seq, t.op, t.dtype, t.red, static_cast<uint32_t>(t.root),
                          facts_of(w.op).is_uneven ? 0 : w.count});
  // Every call runs this, so it makes no string.
  if (at.file && *at.file) {
    std::string_view file = at.file;
    char line[16];
    const size_t digits = fmt::format_to_n(line, sizeof line, ":{}", at.line).size,
                 room = sizeof t.site - 1 - digits;
    if (file.size() > room) file.remove_prefix(file.size() - room);
    std::memcpy(t.site, file.data(), file.size());
    std::memcpy(t.site + file.size(), line, digits);
  }
  return t;
}

std::string text_of(const ToldCall& t) {
  const std::string site(t.site, ::strnlen(t.site, sizeof t.site));
  return flight::call_text(static_cast<Collective>(t.op), static_cast<flight::DType>(t.dtype),
                           static_cast<ReduceOp>(t.red), t.root, t.count) +
         (site.empty() ? "" : " at " + site);
}

}  // namespace trireme::detail
