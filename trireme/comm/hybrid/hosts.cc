// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/hybrid/hosts.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"
#include "trireme/rendezvous/join.h"
#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  check<Corrupt>(name.size() < sizeof a.sun_path - 1, "a socket name of {} bytes", name.size());
  std::memcpy(a.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

UniqueFd listen_at(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t length;
  const sockaddr_un a = address_of(name, length);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), length) != 0 ||
      ::listen(fd.get(), 128) != 0)
    fail<ResourceError>("cannot listen on a Unix socket: {}", errno_text());
  return fd;
}

bool reaches(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check<ResourceError>(static_cast<bool>(fd), "cannot make a Unix socket: {}", errno_text());
  socklen_t length;
  const sockaddr_un a = address_of(name, length);
  // EAGAIN: it exists, with a full queue.
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&a), length) == 0 || errno == EAGAIN;
}

}  // namespace

std::vector<int> find_hosts(Store& store, int rank, int size, Deadline deadline) {
  const char* given = std::getenv("TRIREME_HOST_ID");
  const std::string id = given ? given : "";
  unsigned char raw[16];
  if (::getrandom(raw, sizeof raw, 0) != sizeof raw)
    fail<ResourceError>("no random numbers: {}", errno_text());
  std::string name = "trireme-host-";
  for (unsigned char byte : raw) name += fmt::format("{:02x}", byte);
  const UniqueFd listener = listen_at(name);  // until every rank has looked

  const auto get = [&](const char* what, int q) {
    return get_or_say(store, fmt::format("{}/{}", what, q), deadline, [&] {
      log_warn("rank {} waits for rank {} of {} to report its host (3 s so far)", rank, q, size);
    });
  };
  store.set(fmt::format("host/{}", rank), id.empty() ? "socket:" + name : "id:" + id);
  int leader = rank;
  for (int q = 0; q < rank && leader == rank; ++q) {
    const std::string theirs = get("host", q);
    const bool by_id = theirs.rfind("id:", 0) == 0;
    check<UsageError>(
        by_id == !id.empty(),
        "TRIREME_HOST_ID is set for rank {} and not for rank {}: set it for all ranks "
        "or for none",
        by_id ? q : rank, by_id ? rank : q);
    if (by_id ? theirs == "id:" + id : reaches(theirs.substr(std::strlen("socket:")))) leader = q;
  }
  store.set(fmt::format("leader/{}", rank), std::to_string(leader));
  std::vector<int> leaders;
  for (int q = 0; q < size; ++q) leaders.push_back(std::stoi(get("leader", q)));
  return leaders;
}

}  // namespace trireme::detail
