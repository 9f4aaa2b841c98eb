// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/endpoint.h"

#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "trireme/base/check.h"

namespace trireme::net {

Endpoint Endpoint::tcp(Address address) { return {Kind::tcp, std::move(address), ""}; }

Endpoint Endpoint::unix_abstract(std::string name) {
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  check<UsageError>(!name.empty() && name.size() <= kLongest,
                    "a socket name has 1 to {} bytes; '{}' has {}", kLongest, name, name.size());
  return {Kind::unix_abstract, {}, std::move(name)};
}

Endpoint Endpoint::parse(std::string_view text) {
  constexpr std::string_view kUnix = "unix:@";
  constexpr std::string_view kTcp = "tcp://";
  if (text.starts_with(kUnix)) return unix_abstract(std::string(text.substr(kUnix.size())));
  if (text.starts_with(kTcp)) return tcp(parse_address(text.substr(kTcp.size())));
  check<UsageError>(text.find("://") == std::string_view::npos && !text.starts_with("unix:"),
                    "endpoint '{}': write tcp://host:port, host:port or unix:@name", text);
  return tcp(parse_address(text));
}

std::string Endpoint::text() const {
  return is_unix() ? "unix:@" + name : "tcp://" + address.text();
}

SocketAddress abstract_address(const std::string& name) {
  SocketAddress out;
  auto& un = reinterpret_cast<sockaddr_un&>(out.storage);
  un.sun_family = AF_UNIX;
  // sun_path[0] stays 0: that is what makes the name abstract.
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

}  // namespace trireme::net
