// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "trireme/base/check.h"

namespace trireme::net {
namespace {

uint16_t parse_port(std::string_view port, std::string_view whole) {
  uint32_t value = 0;
  auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), value);
  check<UsageError>(code == std::errc() && end == port.data() + port.size() && value <= 65535,
                    "address '{}': '{}' is not a port; write host:port with a port from 0 to 65535",
                    whole, port);
  return static_cast<uint16_t>(value);
}

}  // namespace

std::string Address::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Address parse_address(std::string_view text, std::optional<uint16_t> default_port) {
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    auto close = text.find(']');
    check<UsageError>(close != std::string_view::npos,
                      "address '{}': missing ']'; write [::1]:port", text);
    host = text.substr(1, close - 1);
    auto rest = text.substr(close + 1);
    check<UsageError>(rest.empty() || rest.front() == ':',
                      "address '{}': after ']' comes ':port'; write [::1]:port", text);
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (auto colon = text.find(':'); colon != std::string_view::npos) {
    bool bare_ipv6 = text.find(':', colon + 1) != std::string_view::npos;
    check<UsageError>(!bare_ipv6 || default_port,
                      "address '{}': an IPv6 address needs brackets; write [::1]:port", text);
    if (!bare_ipv6) {
      host = text.substr(0, colon);
      port = text.substr(colon + 1);
      has_port = true;
    }
  }
  bool clean = !host.empty() && host.size() <= 255 &&
               std::none_of(host.begin(), host.end(),
                            [](unsigned char c) { return c <= ' ' || c == '/' || c == 127; });
  check<UsageError>(clean, "address '{}': no host in it; write host:port", text);
  check<UsageError>(has_port || default_port, "address '{}': no port in it; write host:port", text);
  return {std::string(host), has_port ? parse_port(port, text) : *default_port};
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  in_addr v4{};
  std::string text(host);
  return ::inet_pton(AF_INET, text.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
  }
  return storage.ss_family == AF_UNIX;
}

std::string SocketAddress::text() const {
  if (storage.ss_family == AF_UNIX) return "unix";
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getnameinfo(get(), length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "unknown";
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

std::vector<SocketAddress> resolve(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int code =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  check<ResourceError>(code == 0,
                       "cannot resolve host '{}': {}. Check its spelling and the name service",
                       address.host, code == EAI_SYSTEM ? errno_text() : ::gai_strerror(code));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> out;
  for (addrinfo* a = found; a; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    SocketAddress one;
    std::memcpy(&one.storage, a->ai_addr, a->ai_addrlen);
    one.length = a->ai_addrlen;
    out.push_back(one);
  }
  check<ResourceError>(!out.empty(), "host '{}' has neither an IPv4 nor an IPv6 address",
                       address.host);
  std::stable_partition(out.begin(), out.end(),
                        [](const SocketAddress& a) { return a.storage.ss_family == AF_INET; });
  return out;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown-host";
}

}  // namespace trireme::net
