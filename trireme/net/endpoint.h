// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/net/address.h"

namespace trireme::net {

/// Where a server can be met: "tcp://host:port" (or just host:port), or "unix:@name": an abstract
/// Unix socket, which lives in the network namespace and not in a file, and vanishes with its
/// owner.
struct TRIREME_API Endpoint {
  enum class Kind { tcp, unix_abstract };
  Kind kind = Kind::tcp;
  Address address;   // tcp
  std::string name;  // unix_abstract, without the '@'

  static Endpoint tcp(Address address);
  /// At most 107 bytes (the kernel's limit).
  static Endpoint unix_abstract(std::string name);
  static Endpoint parse(std::string_view text);

  bool is_unix() const { return kind == Kind::unix_abstract; }
  /// What parse() reads.
  std::string text() const;
  bool operator==(const Endpoint&) const = default;
};

/// The kernel's form of an abstract name.
TRIREME_API SocketAddress abstract_address(const std::string& name);

}  // namespace trireme::net
