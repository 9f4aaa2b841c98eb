// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/call_site.h"
#include "trireme/comm/flight/recorder.h"

namespace trireme::detail {

/// A call as ranks send it to each other, byte for byte.
struct ToldCall {
  uint64_t seq, digest, count;  // the digest: of what ranks must agree on
  int32_t root;
  uint8_t op, dtype, red, spare;
  char site[96];  // the end of file:line
};
static_assert(sizeof(ToldCall) == 128);

ToldCall tell(uint64_t seq, const flight::CallWords& words, CallSite at);
std::string text_of(const ToldCall& call);

}  // namespace trireme::detail
