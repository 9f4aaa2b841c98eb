// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/handover.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/snapshot/held_snapshot.h"

namespace trireme {
namespace {

constexpr uint32_t kHandoverMagic = 0x6e735254;  // "TRsn"

struct HandoverMessage {
  uint32_t magic = kHandoverMagic;
  uint32_t version = 1;
  int32_t rank = 0;
  int32_t slot = 0;  // it comes with a descriptor, or with none
};

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

constexpr size_t kMostRanks = 1024;

/// Descriptors for memories beside what a launcher needs for its workers.
size_t most_ranks() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 16;
  return std::clamp<size_t>(limit.rlim_cur / 2 / (1 + SnapshotHandover::kSlots), 1, kMostRanks);
}

}  // namespace

SnapshotHandover::SnapshotHandover(int rank) : rank_(rank) {
  const char* path = std::getenv(kSnapshotsVariable);
  if (!path || !*path) return;
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress address(path);
  if (socket && address.fits && ::connect(socket.get(), address.get(), sizeof address.address) == 0)
    socket_ = std::move(socket);
  else
    log_debug("no launcher holds snapshots at {}: {}", path, errno_text());
}

void SnapshotHandover::hold(int slot, int fd) {
  if (!socket_) return;
  HandoverMessage message;
  message.rank = rank_;
  message.slot = slot;
  iovec io{&message, sizeof message};
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
  if (::sendmsg(socket_.get(), &h, MSG_NOSIGNAL | MSG_DONTWAIT) ==
      static_cast<ssize_t>(sizeof message))
    return;
  log_debug("the launcher does not hold a snapshot: {}", errno_text());
  socket_.reset();
}

SnapshotHolder::SnapshotHolder(const std::string& path)
    : path_(path), listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const SocketAddress address(path);
  if (!listener_ || !address.fits ||
      ::bind(listener_.get(), address.get(), sizeof address.address) != 0 ||
      ::listen(listener_.get(), static_cast<int>(kMostRanks)) != 0)
    fail<ResourceError>("cannot listen at {}: {}", path, errno_text());
}

SnapshotHolder::~SnapshotHolder() { ::unlink(path_.c_str()); }

void SnapshotHolder::add_to(std::vector<pollfd>& fds) const {
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const Rank& rank : ranks_)
    if (rank.socket) fds.push_back({rank.socket.get(), POLLIN, 0});
}

void SnapshotHolder::serve() {
  while (accept_one()) {
  }
  for (Rank& rank : ranks_)
    for (int n = 0; n < 16 && rank.socket && receive_one(rank); ++n) {
    }
  std::erase_if(ranks_, [](const Rank& rank) {
    return !rank.socket && std::none_of(rank.slots.begin(), rank.slots.end(),
                                        [](const UniqueFd& fd) { return bool(fd); });
  });
}

std::vector<HandedSnapshot> SnapshotHolder::take_all() {
  serve();
  std::vector<HandedSnapshot> all;
  for (Rank& rank : ranks_)
    for (UniqueFd& fd : rank.slots)
      if (fd) all.push_back({std::move(fd), rank.rank});
  ranks_.clear();
  return all;
}

bool SnapshotHolder::accept_one() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return false;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
      peer.uid == ::geteuid() && ranks_.size() < most_ranks())
    ranks_.push_back({std::move(socket), 0, {}});
  return true;
}

// False: nothing there, or the end of it.
bool SnapshotHolder::receive_one(Rank& rank) {
  HandoverMessage message;
  iovec io{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr h{};
  h.msg_iov = &io;
  h.msg_iovlen = 1;
  h.msg_control = control;
  h.msg_controllen = CMSG_LEN(sizeof(int));  // of one
  const ssize_t n = ::recvmsg(rank.socket.get(), &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  UniqueFd fd;
  const cmsghdr* c = n < 0 ? nullptr : CMSG_FIRSTHDR(&h);
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
      c->cmsg_len == CMSG_LEN(sizeof(int))) {
    int received;
    std::memcpy(&received, CMSG_DATA(c), sizeof received);
    fd.reset(received);
  }
  if (n <= 0) {  // its end: what it has handed over stays
    rank.socket.reset();
    return false;
  }
  std::string fault;
  if (n != sizeof message || message.magic != kHandoverMagic || (h.msg_flags & MSG_TRUNC))
    fault = "sent what is no message of ours";
  else if (message.version != 1)
    fault = "is of another build";
  else if (h.msg_flags & MSG_CTRUNC)
    fault = "sent more descriptors than there is room for";
  else if (message.slot < 0 || message.slot >= SnapshotHandover::kSlots || message.rank < 0)
    fault = "names a slot or a rank that there is not";
  else if (const std::string what = fd ? fault_in_memory(fd.get()) : ""; !what.empty())
    fault = "handed over a descriptor that " + what;
  if (!fault.empty()) {
    log_warn("a process of this job that would hand over a snapshot {}: it is not listened to",
             fault);
    rank.socket.reset();
    return false;
  }
  rank.rank = message.rank;
  rank.slots[static_cast<size_t>(message.slot)] = std::move(fd);
  return true;
}

}  // namespace trireme
