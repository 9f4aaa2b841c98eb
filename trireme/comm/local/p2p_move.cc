// SPDX-License-Identifier: Apache-2.0
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/base/trace.h"
#include "trireme/comm/local/copy.h"
#include "trireme/comm/local/p2p.h"

// How the bytes of a large message move once a recv has taken it. The receiver decides, and
// notifies the sender in one packet.
namespace trireme::local {
namespace {

// Below this size the sender's help comes too late to be worth requesting.
constexpr size_t kJoinBytes = 16 << 10;

// If ranks share CPUs, from this size one copy without the sender beats two that alternate. With a
// CPU for each, two concurrent copies are up to four times as fast as process_vm_readv.
constexpr size_t kPeekBytes = 2 << 20;

}  // namespace

void Engine::Pairs::begin(uint32_t id, int q, const Packet& p) {
  Request& r = requests_[id];
  check_same(r, q, p);
  r.state = State::matched;
  r.address = p.announce.address;
  r.window = p.announce.window;
  r.flags = p.announce.flags;
  r.send = p.announce.send;
  if (!move(id)) lanes_[static_cast<size_t>(q)].waiting.push(id);
}

/// Returns false if all moves of the pair are in use.
bool Engine::Pairs::move(uint32_t id) {
  Request& r = requests_[id];
  const int q = r.peer;
  const size_t bytes = r.bytes();
  auto* out = static_cast<unsigned char*>(r.call.out);
  Lane& lane = lanes_[static_cast<size_t>(q)];
  Slot from{}, to{};
  from.address = r.address;
  from.window = r.window;
  if (bytes) e_.host_->describe(out, bytes, to);
  const bool readable = r.flags & kAddressable, writable = to.flags & kAddressable;
  const uint32_t free_move = static_cast<uint32_t>(__builtin_ctz(~lane.moves));
  Reply reply;
  reply.send = r.send;
  reply.recv = id;
  if (writable && !(readable && (bytes < kJoinBytes || free_move >= kMoves))) {
    if (free_move >= kMoves) return false;
    lane.moves |= 1u << free_move;
    r.move = free_move;
    r.base = e_.self_->channels[q].moves[free_move].done.load(std::memory_order_relaxed);
    r.end = r.base + Blocks(bytes).count();
    r.state = State::moving;
    lane.moving.push_back(id);
    reply.kind = PacketKind::join;
    reply.address = to.address;
    reply.window = to.window;
    reply.base = r.base;
    reply.move = free_move;
    answer(q, reply);
    if (readable) copy_blocks(r, e_.host_->resolve(q, from, bytes), out);
    return true;
  }
  bool got = bytes == 0;
  if (readable && !got) {
    Span span("comm", name_of(r.call.op));
    const unsigned char* there = e_.host_->resolve(q, from, bytes);
    enter_data(r);
    copy_block(out, there, bytes, 2 * bytes >= stream_from());
    e_.leave_data();
    e_.bytes_read_ += bytes;
    got = true;
  }
  if (got || peek_all(r)) {
    reply.kind = PacketKind::fin;
    answer(q, reply);  // and that completes it
  } else {
    reply.kind = PacketKind::stream;
    r.state = State::streaming;
    r.moved = 0;
    answer(q, reply);
  }
  return true;
}

// The sender's side of a move.
void Engine::Pairs::join(int q, const Packet& p) {
  Request& r = request_at(p.reply.send, q, State::announced);
  check<Corrupt>(p.reply.move < kMoves, "rank {} sent an invalid packet", q);
  r.state = State::moving;
  r.move = p.reply.move;
  r.base = p.reply.base;
  r.end = r.base + Blocks(r.bytes()).count();
  lanes_[static_cast<size_t>(q)].moving.push_back(p.reply.send);
  Slot to{};
  to.address = p.reply.address;
  to.window = p.reply.window;
  copy_blocks(r, static_cast<const unsigned char*>(r.call.in), e_.host_->resolve(q, to, r.bytes()));
}

/// Copies unclaimed blocks until there are none.
void Engine::Pairs::copy_blocks(Request& r, const unsigned char* from, unsigned char* to) {
  const bool sends = r.ticket.kind == Ticket::sending;
  Move& move = sends ? e_.peer_[r.peer]->channels[e_.rank_].moves[r.move]
                     : e_.self_->channels[r.peer].moves[r.move];
  const Blocks blocks(r.bytes());
  if (e_.owes_ring_) e_.ring_peers();
  if (bells_) ring_bells();
  Span span("comm", name_of(r.call.op));
  enter_data(r);
  uint64_t n = move.next.load(std::memory_order_relaxed);
  while (e_.peer_[r.peer]->state.load(std::memory_order_relaxed) != RankState::failed) {
    while (n < r.end && !move.next.compare_exchange_weak(n, n + 1, std::memory_order_acq_rel))
      continue;
    if (n >= r.end || n < r.base) break;
    const size_t begin = blocks.begin(n - r.base), size = blocks.size(n - r.base);
    copy_block(to + begin, from + begin, size, 2 * r.bytes() >= stream_from());
    if (!sends) e_.bytes_read_ += size;
    move.done.fetch_add(1, std::memory_order_release);
  }
  e_.leave_data();
  bells_ |= bit(r.peer);
}

void Engine::Pairs::advance_moves(int q) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  for (size_t i = 0; i < lane.moving.size();) {
    const uint32_t id = lane.moving[i];
    const Request& r = requests_[id];
    const bool sends = r.ticket.kind == Ticket::sending;
    const Move& move =
        sends ? e_.peer_[q]->channels[e_.rank_].moves[r.move] : e_.self_->channels[q].moves[r.move];
    if (move.done.load(std::memory_order_acquire) < r.end || !(sends || r.told)) {
      ++i;
      continue;
    }
    if (!sends) lane.moves &= ~(1u << r.move);
    lane.moving.erase(lane.moving.begin() + static_cast<std::ptrdiff_t>(i));
    finish(id);
  }
  while (!lane.waiting.empty() && move(lane.waiting.front())) lane.waiting.pop();
}

// In one address space a failing rank must not free what a peer copies: it waits until no rank is
// in this section, and ranks that come after it failed are turned away.
void Engine::Pairs::enter_data(const Request& r) {
  if (!e_.threads_) return;
  e_.self_->in_data.store(1, std::memory_order_seq_cst);
  if (e_.peer_[r.peer]->state.load(std::memory_order_seq_cst) != RankState::failed) return;
  e_.leave_data();
  e_.raise_lost(r.peer, r.ticket);
}

// ---- ordinary memory of processes
// -------------------------------------------------------------------------------------

bool Engine::Pairs::read_remote(int q, void* to, uint64_t address, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    // At most 16 MiB a call, so that a signal does not wait long.
    const size_t n = std::min(bytes - done, size_t{16} << 20);
    iovec local{static_cast<unsigned char*>(to) + done, n};
    iovec remote{reinterpret_cast<void*>(address + done), n};
    const ssize_t got = ::process_vm_readv(e_.peer_[q]->pid, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

/// Reads the whole message from the sender's process, if the system permits that. This is tested by
/// reading a number that only the right process holds, because pids may refer to other processes
/// here.
bool Engine::Pairs::peek_all(Request& r) {
  Lane& lane = lanes_[static_cast<size_t>(r.peer)];
  const int q = r.peer;
  if (e_.threads_ || lane.peek == Peek::refused || r.bytes() < kPeekBytes) return false;
  if (!e_.spin_decided_) e_.decide_spin();
  if (e_.spin_us_) return false;
  if (lane.peek == Peek::unknown) {
    uint64_t value = 0;
    const bool works = read_remote(q, &value, e_.peer_[q]->probe_address, sizeof value) &&
                       value == mix64(e_.self_->generation + static_cast<uint64_t>(q));
    lane.peek = works ? Peek::works : Peek::refused;
    if (!works) return false;
  }
  Span span("comm", name_of(r.call.op));
  // It died while we read: another process may have got its pid.
  if (!read_remote(q, r.call.out, r.address, r.bytes()) || !e_.host_->alive(q)) {
    lane.peek = Peek::refused;
    return false;
  }
  e_.bytes_read_ += r.bytes();
  return true;
}

void Engine::Pairs::advance_stream(int q) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  while (!lane.streams.empty() && lane.queue.empty()) {
    const uint32_t id = lane.streams.front();
    Request& r = requests_[id];
    const size_t n = std::min(r.bytes() - r.moved, kChunkBytes);
    unsigned char* to = nullptr;
    Packet* p = room(q, n, false, to);
    if (!p) return;
    std::memcpy(to, static_cast<const unsigned char*>(r.call.in) + r.moved, n);
    p->count = n;
    p->tag = 0;
    p->kind = PacketKind::chunk;
    p->ring.recv = r.send;
    commit(q, *p);
    ring_bells();  // the receiver copies this one while we copy the next
    r.moved += n;
    if (r.moved < r.bytes()) continue;
    lane.streams.pop();
    finish(id);
  }
}

void Engine::Pairs::take_chunk(int q, const Packet& p) {
  Request& r = request_at(p.ring.recv, q, State::streaming);
  check<Corrupt>(r.ticket.kind == Ticket::receiving && p.count <= r.bytes() - r.moved,
                 "rank {} sent more than it announced", q);
  std::memcpy(static_cast<unsigned char*>(r.call.out) + r.moved, bytes_of(q, p, p.count), p.count);
  e_.bytes_read_ += p.count;
  lanes_[static_cast<size_t>(q)].unrung += p.count;
  r.moved += p.count;
  if (r.moved == r.bytes()) finish(p.ring.recv);
}

}  // namespace trireme::local
