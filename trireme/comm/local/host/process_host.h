// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/fd.h"
#include "trireme/comm/local/arena.h"
#include "trireme/comm/local/host/handover.h"
#include "trireme/comm/local/host/host.h"

namespace trireme::local {

/// The Host of ranks that are processes: each maps what the others share.
class ProcessHost final : public Host {
 public:
  ProcessHost(int rank, int size) : Host(rank, size), peers_(static_cast<size_t>(size)) {}

  // process_meet.cc
  void join(const Exchange& exchange, Deadline deadline);
  /// Notifies peers that have already met this rank.
  void give_up(const std::string& why);

  Control* control(int rank) override { return peers_[static_cast<size_t>(rank)].control; }
  bool one_address_space() const override { return false; }
  void* allocate(size_t bytes) override;
  void deallocate(void* p) override;
  size_t window_bytes() const override {
    return arena_.window_bytes() + peers_[static_cast<size_t>(rank())].memory.bytes();
  }
  void describe(const void* p, size_t bytes, Slot& slot) override;
  unsigned char* resolve(int peer, const Slot& slot, size_t bytes) override;
  bool alive(int peer) override;

 private:
  struct Peer {
    Control* control = nullptr;
    Window memory;  // control, staging, channels
    struct Theirs {
      Window window;
      std::string why;  // why it could not be received
    };
    std::vector<Theirs> windows;
    UniqueFd socket;
    UniqueFd pidfd;  // may be missing
    // Announcements that its socket had no room for yet. Until they are sent, calls in these
    // windows take the staged path, so a busy peer does not delay others.
    std::deque<std::pair<Message, std::shared_ptr<UniqueFd>>> outbox;
  };

  void adopt(int peer, UniqueFd socket, Received hello);
  void accept_window(int peer);
  void keep_spare() { spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
  void announce(uint32_t window, const UniqueFd& fd, size_t bytes);
  void exchange_windows();
  bool everybody_knows(uint32_t window);
  Message message(MessageKind kind) const {
    Message m{};
    m.kind = kind;
    m.rank = rank();
    m.generation = generation_;
    return m;
  }

  std::vector<Peer> peers_;
  uint64_t generation_ = 0;
  size_t unsent_ = 0;  // entries of all outboxes
  std::set<void*> ordinary_;
  UniqueFd spare_;  // reserves a descriptor for a peer's next window
  Arena arena_{
      [this](uint32_t window, const UniqueFd& fd, size_t bytes) { announce(window, fd, bytes); }};
};

}  // namespace trireme::local
