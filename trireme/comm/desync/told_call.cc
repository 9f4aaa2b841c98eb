// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/told_call.h"

#include <fmt/core.h>

#include <cstring>

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
  // Parts of an all_to_all may be as uneven as they like.
  t.digest = stable_hash({seq, t.op, t.dtype, t.red, static_cast<uint32_t>(t.root),
                          facts_of(w.op).is_uneven ? 0 : w.count});
  const std::string site =
      at.file && *at.file ? fmt::format("{}:{}", at.file, at.line) : std::string();
  const size_t skip = site.size() < sizeof t.site ? 0 : site.size() - sizeof t.site + 1;
  std::memcpy(t.site, site.c_str() + skip, site.size() - skip);
  return t;
}

std::string text_of(const ToldCall& t) {
  const std::string site(t.site, ::strnlen(t.site, sizeof t.site));
  return flight::call_text(static_cast<Collective>(t.op), static_cast<flight::DType>(t.dtype),
                           static_cast<ReduceOp>(t.red), t.root, t.count) +
         (site.empty() ? "" : " at " + site);
}

}  // namespace trireme::detail
