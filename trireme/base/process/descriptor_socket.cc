// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/descriptor_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/process/abstract_address.h"

namespace trireme {
namespace {

/// The folder of a path may be deeper than a socket's address has room for; it is reached by a
/// descriptor then.
struct SocketAddress {
  explicit SocketAddress(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    folder = UniqueFd(::open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const std::string text = "/proc/self/fd/" + std::to_string(folder.get()) + path.substr(slash);
    fits = folder && text.size() < sizeof address.sun_path;
    address.sun_family = AF_UNIX;
    if (fits) std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  UniqueFd folder;
  sockaddr_un address{};
  bool fits = false;
};

UniqueFd new_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

UniqueFd listen_for_descriptors(const std::string& path, int backlog) {
  UniqueFd listener = new_socket();
  const SocketAddress address(path);
  if (!listener || !address.fits ||
      ::bind(listener.get(), address.get(), sizeof address.address) != 0 ||
      ::listen(listener.get(), backlog) != 0)
    fail<ResourceError>("cannot listen at {}: {}", path, errno_text());
  return listener;
}

UniqueFd connect_for_descriptors(const std::string& path) {
  UniqueFd socket = new_socket();
  const SocketAddress address(path);
  if (socket && address.fits && ::connect(socket.get(), address.get(), sizeof address.address) == 0)
    return socket;
  return {};
}

UniqueFd listen_for_descriptors_at_name(const std::string& name, int backlog) {
  UniqueFd listener = new_socket();
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, length);
  if (!listener ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), backlog) != 0)
    fail<ResourceError>("cannot listen on a Unix socket: {}", errno_text());
  return listener;
}

UniqueFd connect_for_descriptors_at_name(const std::string& name) {
  UniqueFd socket = new_socket();
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, length);
  if (socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0)
    return socket;
  return {};
}

pid_t descriptor_peer_of(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != ::geteuid())
    return -1;
  return who.pid;
}

std::optional<DescriptorPeer> accept_for_descriptors(int listener) {
  DescriptorPeer peer{UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)),
                      0};
  if (!peer.socket) return std::nullopt;
  peer.pid = descriptor_peer_of(peer.socket.get());
  if (peer.pid < 0) peer.socket.reset();
  return peer;
}

bool send_descriptor(int socket, const void* bytes, size_t size, int fd) {
  iovec io{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr h{};
  h.msg_iov = &io;
  h.msg_iovlen = 1;
  if (fd >= 0) {
    h.msg_control = control;
    h.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &h, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

ReceivedDescriptor receive_descriptor(int socket, void* bytes, size_t size) {
  ReceivedDescriptor received;
  iovec io{bytes, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr h{};
  h.msg_iov = &io;
  h.msg_iovlen = 1;
  h.msg_control = control;
  h.msg_controllen = CMSG_LEN(sizeof(int));  // of one
  const ssize_t n = ::recvmsg(socket, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return received;
  const cmsghdr* c = n < 0 ? nullptr : CMSG_FIRSTHDR(&h);
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
      c->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    received.fd.reset(fd);
  }
  received.end = n <= 0 ? ReceivedDescriptor::closed : ReceivedDescriptor::message;
  received.whole = n == static_cast<ssize_t>(size) && !(h.msg_flags & MSG_TRUNC);
  received.too_many = h.msg_flags & MSG_CTRUNC;
  return received;
}

std::string fault_in_memory(int fd) {
  // Only memory can be sealed, so that this alone tells pipes, devices and files on a disk.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  struct stat info {};
  if (seals < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return "is no shared memory without a name";
  if ((seals & kNeeded) != kNeeded) return "is not of a sealed size";
  // Reading where no page is would ask the machine for one, and end the reader if it has none.
  if (info.st_blocks < info.st_size / 512)
    return "has " + std::to_string(info.st_size) + " bytes, of which " +
           std::to_string(info.st_blocks * 512) + " are there";
  return "";
}

}  // namespace trireme
