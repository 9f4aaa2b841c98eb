// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/comm/local/arena.h"
#include "trireme/comm/local/host.h"

namespace trireme::local {
namespace {

constexpr uint32_t kMessageMagic = 0x4d657254;  // "TreM"
enum class MessageKind : uint32_t { hello = 1, window = 2 };

/// What travels on the Unix socket between two ranks, always with descriptors beside it.
struct Message {
  uint32_t magic = kMessageMagic;
  uint32_t version = kControlVersion;
  MessageKind kind;
  int32_t rank;
  uint64_t epoch;
  uint64_t bytes;   // of the window, or of the control memory
  uint32_t window;  // its number
  uint32_t spare = 0;
  char token[32];
};

struct Received {
  Message message;
  std::vector<UniqueFd> fds;
};

std::string random_hex(size_t bytes) {
  unsigned char raw[32];
  check<ResourceError>(::getrandom(raw, bytes, 0) == static_cast<ssize_t>(bytes),
                       "no random numbers: {}", errno_text());
  std::string hex;
  for (size_t i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", raw[i]);
  return hex;
}

sockaddr_un abstract_address(const std::string& name, socklen_t& length) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  check<Corrupt>(name.size() < sizeof a.sun_path - 1, "socket name of {} bytes", name.size());
  std::memcpy(a.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

bool wait_for(int fd, short events, const Deadline& deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    int n = ::poll(&p, 1, deadline.poll_ms(1000));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (deadline.expired()) return false;
  }
}

/// False where the socket is full just now.
bool try_send(int socket, const Message& message, std::initializer_list<int> fds, int peer) {
  iovec io{const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr h{};
  h.msg_iov = &io;
  h.msg_iovlen = 1;
  h.msg_control = control;
  h.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* c = CMSG_FIRSTHDR(&h);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(c), fds.begin(), fds.size() * sizeof(int));
  const ssize_t n = ::sendmsg(socket, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n == static_cast<ssize_t>(sizeof message)) return true;
  check<PeerLost>(n < 0 && (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS),
                  "rank {} closed its socket: {}", peer, errno_text());
  return false;
}

void send_message(int socket, const Message& message, std::initializer_list<int> fds, int peer,
                  Deadline deadline) {
  while (!try_send(socket, message, fds, peer))
    check<Timeout>(wait_for(socket, POLLOUT, deadline) && !deadline.expired(),
                   "rank {} does not take shared memory: it is stuck or stopped", peer);
}

Received receive_message(int socket, int peer, Deadline deadline) {
  Received r;
  iovec io{&r.message, sizeof r.message};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  while (true) {
    msghdr h{};
    h.msg_iov = &io;
    h.msg_iovlen = 1;
    h.msg_control = control;
    h.msg_controllen = sizeof control;
    ssize_t n = ::recvmsg(socket, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_WAITALL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      check<Timeout>(wait_for(socket, POLLIN, deadline), "rank {} does not send its shared memory",
                     peer);
      continue;
    }
    check<PeerLost>(n > 0, "rank {} closed its socket while shared memory was exchanged", peer);
    for (cmsghdr* c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      int count = static_cast<int>((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      for (int i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + static_cast<size_t>(i) * sizeof(int), sizeof fd);
        r.fds.emplace_back(fd);
      }
    }
    check<Corrupt>(n == sizeof r.message && r.message.magic == kMessageMagic,
                   "rank {} sent something that is not ours on the shared-memory socket", peer);
    check<Mismatch>(r.message.version == kControlVersion,
                    "rank {} speaks version {} of the shared-memory protocol, this process version "
                    "{}: use one build",
                    peer, r.message.version, kControlVersion);
    return r;
  }
}

struct Peer {
  Control* control = nullptr;
  Window memory;  // control, staging, channels
  std::vector<Window> windows;
  UniqueFd socket;
  UniqueFd pidfd;
  // Announcements that its socket had no room for yet. Until they are sent, calls in these windows
  // take the staged path: a peer that is busy elsewhere holds up nobody.
  std::deque<std::pair<Message, std::shared_ptr<UniqueFd>>> outbox;
};

class ProcessHost final : public Host {
 public:
  ProcessHost(int rank, int size) : Host(rank, size), peers_(static_cast<size_t>(size)) {}

  void join(const Exchange& exchange, Deadline deadline);

  Control* control(int rank) override { return peers_[static_cast<size_t>(rank)].control; }
  bool one_address_space() const override { return false; }
  void* allocate(size_t bytes) override {
    void* p = arena_.allocate(bytes);
    if (unsent_) exchange_windows();
    return p;
  }
  void deallocate(void* p) override { arena_.deallocate(p); }
  size_t window_bytes() const override {
    return arena_.window_bytes() + peers_[static_cast<size_t>(rank())].memory.bytes();
  }

  void describe(const void* p, size_t bytes, Slot& slot) override {
    Place place{};
    slot.flags = arena_.find(p, bytes, place) && everybody_knows(place.window) ? kAddressable : 0;
    slot.window = place.window;
    slot.address = place.offset;
  }

  unsigned char* resolve(int peer, const Slot& slot, size_t bytes) override {
    Peer& p = peers_[static_cast<size_t>(peer)];
    while (slot.window >= p.windows.size()) accept_window(peer);
    const Window& w = p.windows[slot.window];
    check<Corrupt>(slot.address <= w.bytes() && bytes <= w.bytes() - slot.address,
                   "rank {} published an address outside its window", peer);
    return w.base() + slot.address;
  }

  bool alive(int peer) override {
    Peer& p = peers_[static_cast<size_t>(peer)];
    if (!p.pidfd) return true;
    pollfd f{p.pidfd.get(), POLLIN, 0};
    return ::poll(&f, 1, 0) <= 0;
  }

 private:
  void adopt(int peer, UniqueFd socket, Received hello);
  void accept_window(int peer);
  void announce(uint32_t window, const UniqueFd& fd, size_t bytes);
  void exchange_windows();
  bool everybody_knows(uint32_t window);
  Message message(MessageKind kind) const {
    Message m{};
    m.kind = kind;
    m.rank = rank();
    m.epoch = epoch_;
    return m;
  }

  std::vector<Peer> peers_;
  uint64_t epoch_ = 0;
  size_t unsent_ = 0;  // entries of all outboxes
  Arena arena_{
      [this](uint32_t window, const UniqueFd& fd, size_t bytes) { announce(window, fd, bytes); }};
};

void ProcessHost::announce(uint32_t window, const UniqueFd& fd, size_t bytes) {
  auto copy = std::make_shared<UniqueFd>(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  check<ResourceError>(static_cast<bool>(*copy), "cannot share memory with the other ranks: {}",
                       errno_text());
  Message m = message(MessageKind::window);
  m.window = window;
  m.bytes = bytes;
  for (int q = 0; q < size(); ++q) {
    if (q == rank()) continue;
    peers_[static_cast<size_t>(q)].outbox.emplace_back(m, copy);
    ++unsent_;
  }
}

// Sends what there is room for, and takes what peers have sent, so that two ranks that both
// allocate do not fill each other's sockets. Waits for nobody.
void ProcessHost::exchange_windows() {
  for (int q = 0; q < size(); ++q) {
    Peer& p = peers_[static_cast<size_t>(q)];
    if (q == rank()) continue;
    // A peer that is gone is reported by the next collective, with its name and the call; not here.
    try {
      while (!p.outbox.empty()) {
        auto& [m, fd] = p.outbox.front();
        if (!try_send(p.socket.get(), m, {fd->get()}, q)) break;
        p.outbox.pop_front();
        --unsent_;
      }
      pollfd f{p.socket.get(), POLLIN, 0};
      while (::poll(&f, 1, 0) > 0) accept_window(q);
    } catch (const PeerLost&) {
      unsent_ -= p.outbox.size();
      p.outbox.clear();
    }
  }
}

bool ProcessHost::everybody_knows(uint32_t window) {
  if (unsent_ == 0) return true;
  exchange_windows();
  for (const Peer& p : peers_)
    if (!p.outbox.empty() && p.outbox.front().first.window <= window) return false;
  return true;
}

void ProcessHost::accept_window(int peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  Received r = receive_message(p.socket.get(), peer, Deadline::after(std::chrono::seconds(10)));
  check<Corrupt>(r.message.kind == MessageKind::window && r.message.window == p.windows.size() &&
                     r.fds.size() == 1,
                 "rank {} announced shared memory out of order", peer);
  struct stat st {};
  check<Corrupt>(
      ::fstat(r.fds[0].get(), &st) == 0 && static_cast<uint64_t>(st.st_size) == r.message.bytes,
      "rank {} announced a window of another size than it is", peer);
  p.windows.push_back(Window::map(r.fds[0], r.message.bytes));
}

void ProcessHost::adopt(int peer, UniqueFd socket, Received hello) {
  struct stat st {};
  check<Corrupt>(hello.message.kind == MessageKind::hello && hello.message.rank == peer &&
                     hello.fds.size() == 2 && hello.message.epoch == epoch_ &&
                     hello.message.bytes == control_bytes(size()) &&
                     ::fstat(hello.fds[0].get(), &st) == 0 &&
                     static_cast<uint64_t>(st.st_size) == hello.message.bytes,
                 "rank {} introduced itself wrongly (two jobs under one name?)", peer);
  Peer& p = peers_[static_cast<size_t>(peer)];
  p.memory = Window::map(hello.fds[0], hello.message.bytes);
  p.control = reinterpret_cast<Control*>(p.memory.base());
  check<Corrupt>(p.control->magic == kControlMagic && p.control->rank == peer,
                 "rank {}: bad control memory", peer);
  p.pidfd = std::move(hello.fds[1]);
  p.socket = std::move(socket);
}

void ProcessHost::join(const Exchange& exchange, Deadline deadline) {
  const std::string name = "trireme-" + random_hex(16), token = random_hex(16);
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check<ResourceError>(static_cast<bool>(listener), "cannot create a Unix socket: {}",
                       errno_text());
  socklen_t length = 0;
  sockaddr_un address = abstract_address(name, length);
  check<ResourceError>(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                           ::listen(listener.get(), kMaxRanks) == 0,
                       "cannot listen on a Unix socket: {}", errno_text());
  exchange.set(fmt::format("local/{}", rank()), name + token + (rank() == 0 ? random_hex(8) : ""));
  const std::string first = exchange.get("local/0", deadline);
  check<Corrupt>(first.size() == name.size() + token.size() + 16,
                 "rank 0 published no socket name and epoch");
  epoch_ = std::strtoull(first.c_str() + name.size() + token.size(), nullptr, 16);

  UniqueFd control_fd;
  Peer& self = peers_[static_cast<size_t>(rank())];
  self.memory = Window::create(control_bytes(size()), control_fd);
  self.control = new (self.memory.base()) Control;  // the pages are zero; the atomics start there
  init_control(self.control, rank(), size(), epoch_, control_bytes(size()));
  UniqueFd self_pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  check<ResourceError>(static_cast<bool>(self_pidfd),
                       "pidfd_open: {} (Linux 5.3 or newer is needed)", errno_text());

  Message hello = message(MessageKind::hello);
  hello.bytes = control_bytes(size());
  for (int q = 0; q < rank(); ++q) {
    std::string there = exchange.get(fmt::format("local/{}", q), deadline);
    check<Corrupt>(there.size() >= name.size() + token.size(), "rank {} published no socket name",
                   q);
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un to = abstract_address(there.substr(0, name.size()), length);
    check<PeerLost>(
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), length) == 0,
        "cannot reach rank {} on this host: {}. Are the ranks in one network namespace?", q,
        errno_text());
    std::memcpy(hello.token, there.data() + name.size(), sizeof hello.token);
    send_message(socket.get(), hello, {control_fd.get(), self_pidfd.get()}, q, deadline);
    Received reply = receive_message(socket.get(), q, deadline);
    adopt(q, std::move(socket), std::move(reply));
  }
  for (int missing = size() - 1 - rank(); missing > 0;) {
    if (!wait_for(listener.get(), POLLIN, deadline)) {
      std::string who;
      for (int q = rank() + 1; q < size(); ++q)
        if (!peers_[static_cast<size_t>(q)].control)
          who += (who.empty() ? "" : ", ") + std::to_string(q);
      fail<Timeout>("rank {} waited for rank {} to share memory on this host; it did not come",
                    rank(), who);
    }
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      check<ResourceError>(errno == EINTR || errno == EAGAIN || errno == ECONNABORTED,
                           "cannot accept the other ranks' shared memory: {}", errno_text());
      continue;
    }
    ucred cred{};
    socklen_t size_of_cred = sizeof cred;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &cred, &size_of_cred) != 0 ||
        cred.uid != ::geteuid())
      continue;  // another user knocks: not ours
    Received r = receive_message(socket.get(), -1, deadline);
    const int q = r.message.rank;
    if (std::memcmp(r.message.token, token.data(), token.size()) != 0) continue;
    check<Corrupt>(q > rank() && q < size() && !peers_[static_cast<size_t>(q)].control,
                   "two processes say that they are rank {}", q);
    send_message(socket.get(), hello, {control_fd.get(), self_pidfd.get()}, q, deadline);
    adopt(q, std::move(socket), std::move(r));
    --missing;
  }
  self.control->state.store(RankState::alive, std::memory_order_release);
}

}  // namespace

std::unique_ptr<Host> process_host(int rank, int size, const Exchange& exchange,
                                   Deadline deadline) {
  check<UsageError>(size >= 1 && size <= kMaxRanks && rank >= 0 && rank < size,
                    "rank {} of {} on one host; the local backend takes 1 to {} ranks", rank, size,
                    kMaxRanks);
  auto host = std::make_unique<ProcessHost>(rank, size);
  host->join(exchange, deadline);
  return host;
}

}  // namespace trireme::local
