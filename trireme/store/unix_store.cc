// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/unix_store.h"

#include <fmt/core.h>
#include <unistd.h>

#include "trireme/base/philox.h"

namespace trireme {

net::Endpoint unix_store_endpoint(std::string_view meeting) {
  // Hashed, because ids may be longer than a socket's name; what meets by accident parts again at
  // the handshake's job id.
  uint64_t hash = stable_hash({stable_hash(meeting), meeting.size()});
  return net::Endpoint::unix_abstract(fmt::format("trireme-{}-{:016x}", ::geteuid(), hash));
}

}  // namespace trireme
