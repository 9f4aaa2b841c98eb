// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// "host:port" as people write it, and what the resolver makes of it.
namespace trireme::net {

struct TRIREME_API Address {
  std::string host;
  uint16_t port = 0;

  /// "node1:29500", "[::1]:29500".
  std::string text() const;
  bool operator==(const Address&) const = default;
};

/// Reads "host:port", "1.2.3.4:5", "[::1]:5"; the port may be missing where a default is given.
/// UsageError otherwise.
TRIREME_API Address parse_address(std::string_view text, std::optional<uint16_t> default_port = {});

/// Decided by the text alone: "localhost", 127.x.x.x, ::1. A name that resolves to loopback is not.
TRIREME_API bool is_loopback(std::string_view host);

/// One address of the kernel's.
struct TRIREME_API SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool is_loopback() const;
  /// Numeric: "10.0.0.1:29500", "[::1]:29500", "unix".
  std::string text() const;
};

/// All stream addresses of a host, IPv4 first (what a container has most often). Blocks as long as
/// the system's resolver does (its own limits, some seconds). ResourceError with the resolver's
/// reason.
TRIREME_API std::vector<SocketAddress> resolve(const Address& address);

/// This host's name, for texts; never used to decide anything.
TRIREME_API std::string host_name();

}  // namespace trireme::net
