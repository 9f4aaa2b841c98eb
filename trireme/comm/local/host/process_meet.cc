// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/base/process/abstract_address.h"
#include "trireme/comm/local/host/process_host.h"
#include "trireme/comm/local/refused.h"

// How the processes of a host meet, and how failures to do so are reported.
namespace trireme::local {
namespace {

std::string random_hex(size_t bytes) {
  unsigned char raw[32];
  if (::getrandom(raw, bytes, 0) != static_cast<ssize_t>(bytes))
    fail<ResourceError>("no random numbers: {}", errno_text());
  std::string hex;
  for (size_t i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", raw[i]);
  return hex;
}

// Under a rank's key once it gives up: this mark, the kind of its error, and its text.
constexpr char kGaveUp = '!';
std::string key_of(int rank) { return fmt::format("local/{}", rank); }

/// Throws the error of a rank that gave up.
const std::string& checked(const std::string& value) {
  if (value.size() < 2 || value[0] != kGaveUp) return value;
  if (value[1] == 't') throw Timeout(value.substr(2));
  throw PeerLost(value.substr(2));
}

/// A rank that gives up closes its sockets first, and then publishes why.
std::string last_words(const Exchange& exchange, int rank, int size, const std::string& otherwise) {
  if (!exchange.try_get) return otherwise;
  for (const Deadline patience = Deadline::after(std::chrono::seconds(1)); !patience.expired();) {
    try {
      for (int q = 0; q < size; ++q)
        if (q != rank) checked(exchange.try_get(key_of(q)).value_or(""));
    } catch (const Error& e) {
      return e.what();
    }
    ::usleep(10000);
  }
  return otherwise;
}

}  // namespace

void ProcessHost::give_up(const std::string& why) {
  Control* self = control(rank());
  if (!self) return;
  std::strncpy(self->failure, why.c_str(), sizeof self->failure - 1);
  self->failure_kind.store(FailureKind::lost, std::memory_order_relaxed);
  self->state.store(RankState::failed, std::memory_order_release);
}

void ProcessHost::adopt(int peer, UniqueFd socket, Received hello) {
  check<ResourceError>(!hello.cut, "rank {} cannot take what rank {} shares: {}", rank(), peer,
                       no_descriptors());
  struct stat st {};
  check<Corrupt>(hello.message.kind == MessageKind::hello && hello.message.rank == peer &&
                     (hello.fds.size() == 1 || hello.fds.size() == 2) &&
                     hello.message.generation == generation_ &&
                     hello.message.bytes == control_bytes(size()) &&
                     ::fstat(hello.fds[0].get(), &st) == 0 &&
                     static_cast<uint64_t>(st.st_size) == hello.message.bytes,
                 "rank {} identified itself wrongly (do two jobs have the same name?)", peer);
  Peer& p = peers_[static_cast<size_t>(peer)];
  p.memory = Window::map(hello.fds[0], hello.message.bytes);
  p.control = reinterpret_cast<Control*>(p.memory.base());
  check<Corrupt>(p.control->magic == kControlMagic && p.control->rank == peer,
                 "rank {}: bad control memory", peer);
  if (hello.fds.size() == 2) p.pidfd = std::move(hello.fds[1]);
  p.socket = std::move(socket);
}

void ProcessHost::join(const Exchange& exchange, Deadline deadline) {
  const std::string name = "trireme-" + random_hex(16), token = random_hex(16);
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) refused("cannot create a Unix socket", "socket");
  socklen_t length = 0;
  sockaddr_un address = abstract_address(name, length);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), kMaxRanks) != 0)
    fail<ResourceError>("cannot listen on a Unix socket: {}", errno_text());
  exchange.set(key_of(rank()), name + token + (rank() == 0 ? random_hex(8) : ""));
  constexpr Duration kSayAfter = std::chrono::seconds(3);
  const auto say_awaited = [&](const std::string& who) {
    log_warn("rank {} waits for rank {} of {} to share memory on this host (3 s so far)", rank(),
             who, size());
  };
  // Shown to the launcher: this rank is not the one that hangs.
  WaitMark waits;
  const auto waits_for = [&](const std::string& who) {
    waits.begin(fmt::format("the meeting of the ranks on this host, for rank {}", who));
  };
  const auto get = [&](int q) {
    waits_for(std::to_string(q));
    if (deadline.remaining() > kSayAfter) try {
        return checked(exchange.get(key_of(q), Deadline::after(kSayAfter)));
      } catch (const Timeout&) {
        say_awaited(std::to_string(q));
      }
    return checked(exchange.get(key_of(q), deadline));
  };
  const std::string first = get(0);
  check<Corrupt>(first.size() == name.size() + token.size() + 16,
                 "rank 0 published no socket name and generation number");
  generation_ = std::strtoull(first.c_str() + name.size() + token.size(), nullptr, 16);

  UniqueFd control_fd;
  Peer& self = peers_[static_cast<size_t>(rank())];
  self.memory = Window::create(control_bytes(size()), control_fd);
  self.control = new (self.memory.base()) Control;  // the pages are zero; the atomics start there
  init_control(self.control, rank(), size(), generation_, control_bytes(size()));
  UniqueFd self_pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self_pidfd && errno == EMFILE) refused("cannot monitor the other ranks", "pidfd_open");

  Message hello = message(MessageKind::hello);
  hello.bytes = control_bytes(size());
  std::vector<int> descriptors{control_fd.get()};
  if (self_pidfd) descriptors.push_back(self_pidfd.get());
  for (int q = 0; q < rank(); ++q) {
    const std::string there = get(q);
    check<Corrupt>(there.size() >= name.size() + token.size(), "rank {} published no socket name",
                   q);
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket) refused("cannot create a Unix socket", "socket");
    sockaddr_un to = abstract_address(there.substr(0, name.size()), length);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), length) != 0)
      fail<PeerLost>(
          "cannot reach rank {} on this host: {}. Are the ranks in one network namespace?", q,
          errno_text());
    std::memcpy(hello.token, there.data() + name.size(), sizeof hello.token);
    send_message(socket.get(), hello, descriptors, q, deadline);
    Received reply = receive_message(socket.get(), q, deadline);
    adopt(q, std::move(socket), std::move(reply));
  }
  constexpr Duration look_each = std::chrono::milliseconds(500);
  const auto still_missing = [&] {
    std::string who;
    for (int q = rank() + 1; q < size(); ++q)
      if (!peers_[static_cast<size_t>(q)].control)
        who += (who.empty() ? "" : ", ") + std::to_string(q);
    return who;
  };
  const auto start = Clock::now();
  bool said = false;
  for (int missing = size() - 1 - rank(); missing > 0;) {
    // The deadline holds, however many foreign processes connect.
    waits_for(still_missing());
    if (deadline.expired() ||
        !wait_for(listener.get(), POLLIN,
                  Deadline::after(std::min(look_each, deadline.remaining())))) {
      if (exchange.try_get)
        for (int q = rank() + 1; q < size(); ++q)
          if (!peers_[static_cast<size_t>(q)].control)
            checked(exchange.try_get(key_of(q)).value_or(""));
      if (!said && Clock::now() - start > kSayAfter) {
        said = true;
        say_awaited(still_missing());
      }
      if (!deadline.expired()) continue;
      fail<Timeout>("rank {} waited for rank {} to share memory on this host; it did not come",
                    rank(), still_missing());
    }
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
        refused("cannot accept the other ranks' shared memory", "accept4");
      continue;
    }
    ucred cred{};
    socklen_t size_of_cred = sizeof cred;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &cred, &size_of_cred) != 0 ||
        cred.uid != ::geteuid())
      continue;  // a process of another user: not ours
    Received r = receive_message(socket.get(), -1, deadline);
    const int q = r.message.rank;
    if (std::memcmp(r.message.token, token.data(), token.size()) != 0) continue;
    check<Corrupt>(q > rank() && q < size() && !peers_[static_cast<size_t>(q)].control,
                   "two processes claim to be rank {}", q);
    send_message(socket.get(), hello, descriptors, q, deadline);
    adopt(q, std::move(socket), std::move(r));
    --missing;
  }
  keep_spare();
  self.control->state.store(RankState::alive, std::memory_order_release);
}

std::unique_ptr<Host> process_host(int rank, int size, const Exchange& exchange,
                                   Deadline deadline) {
  check<UsageError>(size >= 1 && size <= kMaxRanks && rank >= 0 && rank < size,
                    "rank {} of {} on one host; the local backend takes 1 to {} ranks", rank, size,
                    kMaxRanks);
  auto host = std::make_unique<ProcessHost>(rank, size);
  auto tell = [&](char kind, const std::string& why) {
    host->give_up(why);
    try {
      exchange.set(key_of(rank), std::string{kGaveUp, kind} + why);
    } catch (const Error&) {  // the store is gone, and the others know that too
    }
  };
  if (exchange.will)
    exchange.will(key_of(rank), fmt::format("{}prank {} (pid {}) died while the ranks of this host "
                                            "shared memory",
                                            kGaveUp, rank, ::getpid()));
  try {
    host->join(exchange, deadline);
  } catch (const PeerLost& e) {
    const std::string why = last_words(exchange, rank, size, e.what());
    tell('p', why);
    throw PeerLost(why);
  } catch (const Timeout& e) {
    tell('t', e.what());
    throw;
  } catch (const std::exception& e) {
    tell('p', fmt::format("rank {} could not share memory with the others: {}", rank, e.what()));
    throw;
  }
  if (exchange.will) exchange.will("", "");
  return host;
}

}  // namespace trireme::local
