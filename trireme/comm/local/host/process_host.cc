// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/host/process_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cstdlib>

#include "trireme/base/check.h"
#include "trireme/comm/local/refused.h"

// Memory that ranks share while they run.
namespace trireme::local {

void* ProcessHost::allocate(size_t bytes) {
  void* p;
  try {
    p = arena_.allocate(bytes);
  } catch (const NoDescriptors&) {
    exchange_windows();
    if (!unsent_) throw;
    // The remaining announcements wait for peers to take them. Meanwhile ordinary memory is used,
    // which is staged.
    p = std::aligned_alloc(kPage, round_up(bytes ? bytes : 1, kPage));
    check<ResourceError>(p != nullptr, "cannot allocate {} bytes", bytes);
    ordinary_.insert(p);
  }
  if (unsent_) exchange_windows();
  return p;
}

void ProcessHost::deallocate(void* p) {
  if (ordinary_.erase(p))
    std::free(p);
  else
    arena_.deallocate(p);
}

void ProcessHost::describe(const void* p, size_t bytes, Slot& slot) {
  Place place{};
  slot.flags = arena_.find(p, bytes, place) && everybody_knows(place.window) ? kAddressable : 0;
  slot.window = place.window;
  slot.address = place.offset;
}

unsigned char* ProcessHost::resolve(int peer, const Slot& slot, size_t bytes) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  while (slot.window >= p.windows.size()) accept_window(peer);
  const Window& w = p.windows[slot.window].window;
  check<ResourceError>(w.base(), "cannot take the memory that rank {} shares: {}", peer,
                       p.windows[slot.window].why);
  check<Corrupt>(slot.address <= w.bytes() && bytes <= w.bytes() - slot.address,
                 "rank {} published an address outside its window", peer);
  return w.base() + slot.address;
}

bool ProcessHost::alive(int peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (!p.socket) return true;
  // If the system has no pidfds, or denies them, the socket shows it too, unless a child of the
  // peer holds it.
  pollfd f{p.pidfd ? p.pidfd.get() : p.socket.get(), static_cast<short>(p.pidfd ? POLLIN : 0), 0};
  return ::poll(&f, 1, 0) <= 0;
}

void ProcessHost::announce(uint32_t window, const UniqueFd& fd, size_t bytes) {
  auto copy = std::make_shared<UniqueFd>(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!*copy) refused("cannot share memory with the other ranks", "fcntl");
  Message m = message(MessageKind::window);
  m.window = window;
  m.bytes = bytes;
  for (int q = 0; q < size(); ++q) {
    if (q == rank()) continue;
    peers_[static_cast<size_t>(q)].outbox.emplace_back(m, copy);
    ++unsent_;
  }
}

// Sends what there is room for, and receives what peers have sent, so that two ranks that both
// allocate do not fill each other's sockets. It never waits.
void ProcessHost::exchange_windows() {
  for (int q = 0; q < size(); ++q) {
    Peer& p = peers_[static_cast<size_t>(q)];
    if (q == rank()) continue;
    // The next collective reports a peer that is gone, with its name and the call.
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
  spare_.reset();
  Received r = receive_message(p.socket.get(), peer, Deadline::after(std::chrono::seconds(10)));
  struct Again {
    ProcessHost& host;
    Received& received;
    ~Again() {
      received.fds.clear();
      host.keep_spare();
    }
  } again{*this, r};
  check<Corrupt>(r.message.kind == MessageKind::window && r.message.window == p.windows.size() &&
                     (r.fds.size() == 1 || r.cut),
                 "rank {} announced shared memory out of order", peer);
  if (r.cut) {  // an error once a call needs it
    p.windows.push_back({{}, no_descriptors()});
    return;
  }
  struct stat st {};
  check<Corrupt>(
      ::fstat(r.fds[0].get(), &st) == 0 && static_cast<uint64_t>(st.st_size) == r.message.bytes,
      "rank {} announced a window of another size than it is", peer);
  Peer::Theirs theirs;
  try {
    theirs.window = Window::map(r.fds[0], r.message.bytes);
  } catch (const ResourceError& e) {
    theirs.why = e.what();
  }
  p.windows.push_back(std::move(theirs));
}

}  // namespace trireme::local
