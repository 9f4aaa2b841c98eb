// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "trireme/comm/local/p2p.h"
#include "trireme/comm/local/waiter.h"

// Outgoing packets of point-to-point messages.
namespace trireme::local {
namespace {

// Eager messages of one pair without a recv may take this much of the receiver's memory; beyond it
// small messages are announced too.
constexpr uint64_t kEagerCredit = 4 << 20;

// Data leaves this many packets free for answers, so that no flood of messages can delay them.
constexpr uint64_t kReplyPackets = 32;

}  // namespace

/// Returns the next packet to this peer, and space for `bytes` in the ring; nullptr if there is no
/// room.
Packet* Engine::Pairs::room(int q, size_t bytes, bool reply, unsigned char*& ring) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  const uint64_t limit = reply ? kPackets : kPackets - kReplyPackets;
  uint64_t at = lane.space.head();
  auto fits = [&] {
    return lane.sent - lane.taken < limit && (bytes == 0 || lane.space.reserve(bytes, at));
  };
  if (!fits()) {
    const uint64_t taken = e_.peer_[q]->channels[e_.rank_].taken.load(std::memory_order_acquire);
    if (taken == lane.taken) return nullptr;
    lane.taken = taken;
    lane.space.release_up_to(lane.end_of[(taken - 1) % kPackets]);
    if (!fits()) return nullptr;
  }
  lane.end_of[lane.sent % kPackets] = lane.space.head();
  Packet& p = packets_of(e_.self_, q)[lane.sent % kPackets];
  if (bytes) {
    p.ring.at = at;
    ring = channel_of(e_.self_, q) + at % kChannelBytes;
  }
  return &p;
}

void Engine::Pairs::commit(int q, Packet& p) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  p.stamp.store(++lane.sent, std::memory_order_release);
  prefetch_to_write(&packets_of(e_.self_, q)[lane.sent % kPackets]);
  lane.knocked = false;
  bells_ |= bit(q);
}

/// The receiver checks only where it expects something, so it is notified that a sender waits for
/// room.
bool Engine::Pairs::out_of_room(int q) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  if (!lane.knocked) {
    e_.peer_[q]->knocks.fetch_or(bit(e_.rank_), std::memory_order_release);
    lane.knocked = true;
    bells_ |= bit(q);
  }
  return false;
}

/// A small message, whole.
Engine::Pairs::Put Engine::Pairs::put_message(int q, const Call& call) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  const size_t bytes = call.count * size_of(call.dtype);
  const uint64_t cost = eager_cost(bytes);
  if (bytes > kEagerBytes) return Put::announce;
  if (lane.eager - lane.released + cost > kEagerCredit) {
    lane.released = e_.peer_[q]->channels[e_.rank_].released.load(std::memory_order_acquire);
    if (lane.eager - lane.released + cost > kEagerCredit) return Put::announce;
  }
  unsigned char* to = nullptr;
  Packet* p = room(q, bytes <= kPacketBytes ? 0 : bytes, false, to);
  if (!p) {
    out_of_room(q);
    return Put::no_room;
  }
  p->count = call.count;
  p->tag = call.tag;
  p->kind = PacketKind::eager;
  p->dtype = call.dtype;
  p->site = static_cast<uint16_t>(e_.site_index(call.site));
  if (bytes) std::memcpy(to ? to : p->data, call.in, bytes);
  lane.eager += cost;
  commit(q, *p);
  if (to)  // the next message probably lies behind this one
    for (size_t line = 0; line < bytes && line < 256; line += 64)
      prefetch_to_write(channel_of(e_.self_, q) + (lane.space.head() + line) % kChannelBytes);
  return Put::done;
}

bool Engine::Pairs::put_announcement(int q, uint32_t id) {
  const Call& call = requests_[id].call;
  unsigned char* none = nullptr;
  Packet* p = room(q, 0, false, none);
  if (!p) return out_of_room(q);
  Slot place{};
  e_.host_->describe(call.in, requests_[id].bytes(), place);
  p->count = call.count;
  p->tag = call.tag;
  p->kind = PacketKind::announce;
  p->dtype = call.dtype;
  p->site = static_cast<uint16_t>(e_.site_index(call.site));
  p->announce.address =
      place.flags & kAddressable ? place.address : reinterpret_cast<uint64_t>(call.in);
  p->announce.window = place.window;
  p->announce.flags = place.flags;
  p->announce.send = id;
  requests_[id].state = State::announced;
  commit(q, *p);
  return true;
}

bool Engine::Pairs::put_reply(int q, const Reply& reply) {
  unsigned char* none = nullptr;
  Packet* p = room(q, 0, true, none);
  if (!p) return out_of_room(q);
  p->count = 0;
  p->tag = 0;
  p->kind = reply.kind;
  p->reply = {reply.address, reply.base, reply.window, reply.send, reply.recv, reply.move};
  commit(q, *p);
  // No recv is complete before its sender can know: this rank may leave then.
  requests_[reply.recv].told = true;
  if (reply.kind == PacketKind::fin) finish(reply.recv);
  return true;
}

void Engine::Pairs::answer(int q, const Reply& reply) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  if (!lane.replies.empty() || !put_reply(q, reply)) lane.replies.push(reply);
}

void Engine::Pairs::flush(int q) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  while (!lane.replies.empty() && put_reply(q, lane.replies.front())) lane.replies.pop();
  while (!lane.queue.empty()) {
    const uint32_t id = lane.queue.front();
    const Put put = put_message(q, requests_[id].call);
    if (put == Put::no_room || (put == Put::announce && !put_announcement(q, id))) return;
    lane.queue.pop();
    if (put == Put::done) finish(id);
  }
}

// Sleeping peers that received something are woken once for all of it.
void Engine::Pairs::ring_bells() {
  // Our packets first, then their `sleeping`: as in ring_peers().
  if (e_.quiet_)
    compiler_barrier();
  else
    full_fence();
  for (uint64_t left = std::exchange(bells_, 0); left; left &= left - 1) {
    Control* bell = e_.bell_[__builtin_ctzll(left)];
    if (!bell->sleeping.load(std::memory_order_relaxed)) continue;
    bell->bell.fetch_add(1, std::memory_order_release);
    futex_wake(&bell->bell);
  }
}

}  // namespace trireme::local
