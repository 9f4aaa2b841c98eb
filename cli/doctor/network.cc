// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "cli/doctor/sections.h"
#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"
#include "trireme/net/address.h"
#include "trireme/rendezvous/rank_env.h"

namespace trireme::doctor {
namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  if (::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

/// By the kernel of this network namespace; /sys may show another one's.
int mtu_of(const std::string& interface) {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  return fd && ::ioctl(fd.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

int number_in(const std::string& path) {
  const auto text = launch::read_if_there(path);
  return text ? static_cast<int>(
                    std::max<int64_t>(0, launch::parse_int(launch::trim(*text)).value_or(0)))
              : 0;
}

}  // namespace

std::vector<Interface> read_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    auto it = std::find_if(found.begin(), found.end(),
                           [&](const Interface& i) { return i.name == at->ifa_name; });
    if (it == found.end()) {
      Interface i;
      i.name = at->ifa_name;
      i.up = (at->ifa_flags & IFF_UP) && (at->ifa_flags & IFF_RUNNING);
      i.loopback = at->ifa_flags & IFF_LOOPBACK;
      i.mtu = mtu_of(i.name);
      i.mbit = number_in("/sys/class/net/" + i.name + "/speed");
      it = found.insert(found.end(), i);
    }
    if (!at->ifa_addr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    it->addresses.push_back(
        numeric(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  return found;
}

Route route_to(const std::string& master, const std::vector<Interface>& interfaces) {
  Route route;
  route.master = master;
  if (master.empty()) return route;
  try {
    const auto address = net::parse_address(master, uint16_t{29500});
    route.own_name = address.host == net::host_name();
    for (const auto& to : net::resolve(address)) {
      route.resolved = numeric(to.get(), to.length);
      // Connecting a datagram socket sends nothing: the kernel only chooses the way.
      UniqueFd fd(::socket(to.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_storage local{};
      socklen_t length = sizeof local;
      if (!fd || ::connect(fd.get(), to.get(), to.length) != 0 ||
          ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
        route.error = errno_text();
        continue;
      }
      route.error.clear();
      route.local = numeric(reinterpret_cast<sockaddr*>(&local), length);
      for (const Interface& i : interfaces)
        if (std::find(i.addresses.begin(), i.addresses.end(), route.local) != i.addresses.end())
          route.interface = i.name;
      break;
    }
  } catch (const Error& e) {
    route.error = e.what();
  }
  return route;
}

Section network(const Options& options) {
  Section s("network");
  const auto interfaces = read_interfaces();
  const RankEnv env = read_rank_env();
  Route route = route_to(options.master.empty() ? env.master_addr : options.master, interfaces);
  route.several_hosts = env.world_size > 1 && !env.single_host();
  ordered_json list = ordered_json::array();
  for (const Interface& i : interfaces) {
    list.push_back({{"name", i.name},
                    {"up", i.up},
                    {"addresses", i.addresses},
                    {"mtu", i.mtu},
                    {"mbit_per_s", i.mbit > 0 ? ordered_json(i.mbit) : ordered_json(nullptr)}});
    if (!i.up || i.addresses.empty()) continue;
    s.row(i.name, fmt::format("{}, mtu {}{}", fmt::join(i.addresses, " "), i.mtu,
                              i.mbit > 0 ? fmt::format(", {} Mbit/s", i.mbit) : ""));
  }
  s.json = {{"host", net::host_name()}, {"interfaces", list}};
  if (route.master.empty()) {
    s.row("master", "MASTER_ADDR is not set: one host (--master HOST shows the way to one)");
    s.json["route"] = nullptr;
  } else {
    s.row("master", route.error.empty() ? fmt::format("{} ({}) by {} from {}", route.master,
                                                      route.resolved, route.interface, route.local)
                                        : fmt::format("{}: {}", route.master, route.error));
    s.json["route"] = {{"master", route.master},
                       {"resolved", route.resolved},
                       {"interface", route.interface},
                       {"local", route.local},
                       {"error", route.error}};
  }
  for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const auto value = launch::process_env(name);
    if (!value || value->empty() || value->front() == '^') continue;
    s.row(name, *value);
    bool there = false;
    for (auto wanted : launch::split(*value, ','))
      for (const Interface& i : interfaces)
        there = there || i.name.starts_with(wanted.substr(wanted.starts_with("=") ? 1 : 0));
    if (!there)
      s.find(fmt::format("{}={}: this host has no such interface", name, *value),
             fmt::format("unset {}, or name one of the above", name));
  }
  const Findings more = advise(interfaces, route);
  s.findings.insert(s.findings.end(), more.begin(), more.end());
  return s;
}

}  // namespace trireme::doctor
