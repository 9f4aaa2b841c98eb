// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/net/address.h"

namespace trireme::net {

/// The two ends of a way to another host, numeric.
struct Route {
  std::string to;    // the host at the other end
  std::string from;  // this host, as that one reaches it
};

/// The way that the kernel would take; no packet is sent. Both ends are empty where the address is
/// one of loopback. ResourceError: there is none, or the name cannot be resolved.
TRIREME_API Route route_to(const Address& address);

}  // namespace trireme::net
