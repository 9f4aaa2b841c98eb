// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/comm/local/engine.h"

// Point to point: each ordered pair has a ring of bytes in the sender's control memory. A message
// is a header and its bytes; it may be larger than the ring. Messages of a pair arrive in the order
// they were sent.
namespace trireme::local {
namespace {

struct Header {
  uint64_t bytes;
  uint64_t count;
  DType dtype;
  uint8_t spare[3];
  int32_t tag;
};
static_assert(sizeof(Header) == 24);

void ring_write(unsigned char* ring, uint64_t at, const void* from, size_t n) {
  const size_t place = at % kChannelBytes, first = std::min(n, kChannelBytes - place);
  std::memcpy(ring + place, from, first);
  std::memcpy(ring, static_cast<const unsigned char*>(from) + first, n - first);
}

void ring_read(const unsigned char* ring, uint64_t at, void* to, size_t n) {
  const size_t place = at % kChannelBytes, first = std::min(n, kChannelBytes - place);
  std::memcpy(to, ring + place, first);
  std::memcpy(static_cast<unsigned char*>(to) + first, ring, n - first);
}

}  // namespace

bool Engine::advance_send(int peer, Stream& s) {
  const Call& c = s.calls.front();
  const size_t total = c.count * size_of(c.dtype);
  Channel& mine = self_->channels[peer];
  unsigned char* ring = channel_of(self_, peer);
  uint64_t head = mine.head.load(std::memory_order_relaxed);
  while (true) {
    // The peer's tail for the stream from us is in the peer's control memory.
    const uint64_t tail = peer_[peer]->channels[rank_].tail.load(std::memory_order_acquire);
    size_t room = kChannelBytes - static_cast<size_t>(head - tail);
    bool moved = false;
    if (!s.header_done) {
      if (room < sizeof(Header)) return false;
      const Header h{total, c.count, c.dtype, {}, c.tag};
      ring_write(ring, head, &h, sizeof h);
      head += sizeof h;
      room -= sizeof h;
      s.header_done = moved = true;
      s.moved = 0;
    }
    // Quarters, so that both ends copy at the same time.
    const size_t n = std::min({room, total - s.moved, kChannelBytes / 4});
    if (n) ring_write(ring, head, static_cast<const unsigned char*>(c.in) + s.moved, n);
    head += n;
    s.moved += n;
    if (n || moved) publish_flag(mine.head, head);
    if (s.moved == total) return true;
    if (n == 0) return false;
  }
}

bool Engine::advance_recv(int peer, Stream& s) {
  const Call& c = s.calls.front();
  const size_t total = c.count * size_of(c.dtype);
  Channel& theirs = peer_[peer]->channels[rank_];
  const unsigned char* ring = channel_of(peer_[peer], rank_);
  Flag& mine = self_->channels[peer].tail;
  uint64_t tail = mine.load(std::memory_order_relaxed);
  while (true) {
    const size_t there = static_cast<size_t>(theirs.head.load(std::memory_order_acquire) - tail);
    size_t left = there;
    bool moved = false;
    if (!s.header_done) {
      if (left < sizeof(Header)) return false;
      Header h;
      ring_read(ring, tail, &h, sizeof h);
      if (h.dtype != c.dtype || h.count != c.count || h.tag != c.tag)
        raise_wrong_message(peer,
                            fmt::format("{}[{}] with tag {}", name_of(h.dtype), h.count, h.tag), c);
      tail += sizeof h;
      left -= sizeof h;
      s.header_done = moved = true;
      s.moved = 0;
    }
    const size_t n = std::min({left, total - s.moved, kChannelBytes / 4});
    if (n) ring_read(ring, tail, static_cast<unsigned char*>(c.out) + s.moved, n);
    tail += n;
    s.moved += n;
    bytes_read_ += n;
    if (n || moved) publish_flag(mine, tail);
    if (s.moved == total) return true;
    if (n == 0) return false;
  }
}

void Engine::advance_streams() {
  for (int q = 0; q < size_; ++q) {
    auto run = [&](Stream& s, bool (Engine::*advance)(int, Stream&)) {
      while (!s.calls.empty() && (this->*advance)(q, s)) {
        s.calls.pop_front();
        s.header_done = false;
        ++s.complete;
        --streams_pending_;
      }
    };
    run(sends_[q], &Engine::advance_send);
    run(recvs_[q], &Engine::advance_recv);
  }
}

}  // namespace trireme::local
