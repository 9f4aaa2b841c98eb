// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/p2p.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/comm/local/waiter.h"

// Posting, packets in, matching and completion. Packets out: p2p_packets.cc; how large messages
// move: p2p_move.cc.
namespace trireme::local {
namespace {

constexpr uint64_t kSourcesKept = 1 << 16;  // of completed recvs of any source

}  // namespace

Engine::Pairs::Pairs(Engine& engine)
    : e_(engine), lanes_(static_cast<size_t>(engine.size_)), book_(engine.size_) {
  probe_ = mix64(e_.self_->generation + static_cast<uint64_t>(e_.rank_));
  e_.self_->probe_address = reinterpret_cast<uint64_t>(&probe_);
}

// ---- requests
// --------------------------------------------------------------------------------------------------------

uint32_t Engine::Pairs::new_request(const Call& call, const Ticket& ticket) {
  if (free_requests_.empty()) {
    free_requests_.push_back(static_cast<uint32_t>(requests_.size()));
    requests_.emplace_back();
  }
  const uint32_t id = free_requests_.back();
  free_requests_.pop_back();
  Request& r = requests_[id];
  r.call = call;
  r.ticket = ticket;
  r.record = e_.record_pair(call, false);
  r.told = false;
  ++under_way_;
  return id;
}

void Engine::Pairs::update_watch(int q) {
  const Lane& lane = lanes_[static_cast<size_t>(q)];
  if (lane.requests || (any_posted_ && q != e_.rank_))
    watch_ |= bit(q);
  else
    watch_ &= ~bit(q);
}

void Engine::Pairs::attach(uint32_t id, int peer) {
  requests_[id].peer = peer;
  ++lanes_[static_cast<size_t>(peer)].requests;
  watch_ |= bit(peer);
}

void Engine::Pairs::finish(uint32_t id) {
  Request& r = requests_[id];
  Lane& lane = lanes_[static_cast<size_t>(r.peer)];
  if (r.ticket.peer == kAnySource) e_.recorder_.pair_peer(r.record, r.peer);
  e_.recorder_.pair_done(r.record);
  if (r.ticket.kind == Ticket::sending) {
    lane.sends.done(r.ticket.seq);
  } else if (r.ticket.peer != kAnySource) {
    lane.recvs.done(r.ticket.seq);
  } else {
    any_source_.resize(std::max<size_t>(
        any_source_.size(), static_cast<size_t>(std::min(r.ticket.seq + 1, kSourcesKept))));
    any_source_[r.ticket.seq % kSourcesKept] = static_cast<uint8_t>(r.peer);
    any_last_ = std::max(any_last_, r.ticket.seq);
    any_.done(r.ticket.seq);
  }
  r.state = State::free;
  free_requests_.push_back(id);
  --under_way_;
  --lane.requests;
  update_watch(r.peer);
}

// A request that a peer's packet names.
Engine::Pairs::Request& Engine::Pairs::request_at(uint32_t id, int q, State state) {
  check<Corrupt>(id < requests_.size() && requests_[id].state == state && requests_[id].peer == q,
                 "rank {} answered a message that rank {} does not have in flight", q, e_.rank_);
  return requests_[id];
}

bool Engine::Pairs::is_complete(const Ticket& t) const {
  if (t.peer == kAnySource) return any_.is_done(t.seq);
  const Lane& lane = lanes_[static_cast<size_t>(t.peer)];
  return (t.kind == Ticket::sending ? lane.sends : lane.recvs).is_done(t.seq);
}

int Engine::Pairs::source(const Ticket& t) const {
  if (t.peer != kAnySource) return t.peer;
  check<UsageError>(any_.is_done(t.seq), "source(): this recv is not complete yet");
  check<UsageError>(any_last_ - t.seq < kSourcesKept,
                    "source(): {} later receives from any source are complete; ask earlier",
                    kSourcesKept);
  return any_source_[t.seq % kSourcesKept];
}

const Engine::Pairs::Request* Engine::Pairs::find(const Ticket& t) const {
  for (const Request& r : requests_)
    if (r.state != State::free && r.ticket.kind == t.kind && r.ticket.peer == t.peer &&
        r.ticket.seq == t.seq)
      return &r;
  return nullptr;
}

const Call* Engine::Pairs::call_of(const Ticket& t) const {
  const Request* r = find(t);
  return r ? &r->call : nullptr;
}

int Engine::Pairs::peer_of(const Ticket& t) const {
  const Request* r = find(t);
  return r ? r->peer : t.peer;
}

int Engine::Pairs::waits_for(const Ticket& t) const {
  const Request* r = find(t);
  if (!r) return -1;
  return r->state == State::posted || r->state == State::queued || r->state == State::announced
             ? r->peer
             : -1;
}

uint64_t Engine::Pairs::events() const {
  uint64_t n = under_way_;
  for (const Lane& lane : lanes_) n += lane.sent + lane.received;
  return n;
}

const Call* Engine::Pairs::unfinished() const {
  for (const Request& r : requests_)
    if (r.state != State::free && r.state != State::posted) return &r.call;
  return nullptr;
}

// ---- posting
// ---------------------------------------------------------------------------------------------------------

Ticket Engine::Pairs::post(const Call& call) {
  if (call.op == Collective::send) {
    Lane& lane = lanes_[static_cast<size_t>(call.root)];
    const Ticket ticket{Ticket::sending, call.root, lane.sends.issue()};
    if (lane.queue.empty() && put_message(call.root, call) == Put::done) {
      lane.sends.done(ticket.seq);
      e_.record_pair(call, true);
      return ticket;
    }
    const uint32_t id = new_request(call, ticket);
    requests_[id].state = State::queued;
    attach(id, call.root);
    lane.queue.push(id);
    return ticket;
  }
  const bool any = call.root == kAnySource;
  const Ticket ticket{Ticket::receiving, call.root,
                      (any ? any_ : lanes_[static_cast<size_t>(call.root)].recvs).issue()};
  const uint32_t id = new_request(call, ticket);
  const uint32_t message = book_.post(call.root, call.tag, id);
  requests_[id].state = message == MatchBook::kNone ? State::posted : State::matched;
  if (message != MatchBook::kNone) {
    attach(id, messages_[message].source);
    ready_.push({id, message});
  } else if (any) {
    ++any_posted_;
    requests_[id].peer = kAnySource;
    for (int q = 0; q < e_.size_; ++q)
      if (q != e_.rank_) watch_ |= bit(q);
  } else {
    attach(id, call.root);
  }
  return ticket;
}

// ---- packets in
// ------------------------------------------------------------------------------------------------------

const unsigned char* Engine::Pairs::bytes_of(int q, const Packet& p, size_t bytes) {
  const size_t place = p.ring.at % kChannelBytes;
  check<Corrupt>(bytes <= kChannelBytes - place, "rank {} sent a message outside its ring", q);
  return channel_of(e_.peer_[q], e_.rank_) + place;
}

void Engine::Pairs::release(int q, size_t bytes) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  lane.released_here += eager_cost(bytes);
  e_.self_->channels[q].released.store(lane.released_here, std::memory_order_release);
}

void Engine::Pairs::check_same(const Request& r, int q, const Packet& p) {
  if (p.dtype == r.call.dtype && p.count == r.call.count) [[likely]]
    return;
  std::string site;
  if (p.site < e_.peer_[q]->ring.site_count.load(std::memory_order_acquire))
    site = e_.peer_[q]->ring.sites[p.site].text;
  e_.raise_wrong_message(q, fmt::format("{}[{}] with tag {}", name_of(p.dtype), p.count, p.tag),
                         site, r.call, r.ticket.seq);
}

void Engine::Pairs::deliver(uint32_t id, int q, const Packet& p, const unsigned char* bytes) {
  Request& r = requests_[id];
  check_same(r, q, p);
  const size_t n = r.bytes();
  if (n) std::memcpy(r.call.out, bytes, n);
  e_.bytes_read_ += n;
  release(q, n);
  finish(id);
}

void Engine::Pairs::take(int q, Packet& p) {
  switch (p.kind) {
    case PacketKind::eager:
    case PacketKind::announce: {
      const uint32_t id = book_.arrive(q, p.tag);
      const bool eager = p.kind == PacketKind::eager;
      check<Corrupt>(size_of(p.dtype) != 0 && (!eager || p.count <= kEagerBytes),
                     "rank {} sent an invalid packet", q);
      const size_t bytes = eager ? p.count * size_of(p.dtype) : 0;
      const unsigned char* from = bytes <= kPacketBytes ? p.data : bytes_of(q, p, bytes);
      if (bytes > kPacketBytes) lanes_[static_cast<size_t>(q)].unrung += bytes;
      if (id != MatchBook::kNone) {
        if (requests_[id].peer == kAnySource) {
          --any_posted_;
          attach(id, q);
          if (any_posted_ == 0)
            for (int o = 0; o < e_.size_; ++o) update_watch(o);
        }
        if (eager)
          deliver(id, q, p, from);
        else
          begin(id, q, p);
        return;
      }
      if (free_messages_.empty()) {
        free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
        messages_.emplace_back();
      }
      const uint32_t number = free_messages_.back();
      free_messages_.pop_back();
      Message& m = messages_[number];
      m.source = q;
      std::memcpy(static_cast<void*>(&m.packet), &p, sizeof p);
      if (bytes > kPacketBytes) {
        m.bytes.reset(new unsigned char[bytes]);
        std::memcpy(m.bytes.get(), from, bytes);
      }
      book_.keep(q, p.tag, number);
      return;
    }
    case PacketKind::join:
      return join(q, p);
    case PacketKind::stream: {
      Request& r = request_at(p.reply.send, q, State::announced);
      r.state = State::streaming;
      r.send = p.reply.recv;
      r.moved = 0;
      lanes_[static_cast<size_t>(q)].streams.push(p.reply.send);
      return;
    }
    case PacketKind::fin:
      request_at(p.reply.send, q, State::announced);
      return finish(p.reply.send);
    case PacketKind::chunk:
      return take_chunk(q, p);
    case PacketKind::none:
      break;
  }
  fail<Corrupt>("rank {} sent an invalid packet", q);
}

void Engine::Pairs::drain(int q, bool knocked) {
  Lane& lane = lanes_[static_cast<size_t>(q)];
  Packet* packets = packets_of(e_.peer_[q], e_.rank_);
  Flag& taken = e_.self_->channels[q].taken;
  for (size_t n = 0; n < kPackets; ++n) {
    Packet& p = packets[lane.received % kPackets];
    if (p.stamp.load(std::memory_order_acquire) != lane.received + 1) return;
    ++lane.received;  // even if its content is an error
    take(q, p);
    taken.store(lane.received, std::memory_order_release);
    // A sender that waits for room is notified at each quarter.
    if ((lane.unrung += kChannelBytes / kPackets) >= kChannelBytes / 4) {
      lane.unrung = 0;
      bells_ |= bit(q);
    }
    // Nothing more is expected: a check would take the next packet's line from its sender.
    if (!knocked && !(watch_ & bit(q))) return;
  }
}

void Engine::Pairs::look() {
  if (watch_ == 0 || (watch_ & (watch_ - 1)) || ready_.size()) return cpu_relax();
  const int q = __builtin_ctzll(watch_);
  const Lane& lane = lanes_[static_cast<size_t>(q)];
  if (!lane.queue.empty() || !lane.replies.empty() || !lane.moving.empty() ||
      !lane.waiting.empty() || !lane.streams.empty())
    return cpu_relax();
  const Packet& next = packets_of(e_.peer_[q], e_.rank_)[lane.received % kPackets];
  for (int i = 0; i < 16; ++i)
    if (next.stamp.load(std::memory_order_acquire) == lane.received + 1) return;
}

void Engine::Pairs::advance() {
  while (!ready_.empty()) {
    const auto [id, number] = ready_.front();
    ready_.pop();
    Message& m = messages_[number];
    if (m.packet.kind == PacketKind::eager)
      deliver(id, m.source, m.packet, m.bytes ? m.bytes.get() : m.packet.data);
    else
      begin(id, m.source, m.packet);
    m.bytes.reset();
    free_messages_.push_back(number);
  }
  uint64_t knocks = 0;
  if (e_.self_->knocks.load(std::memory_order_relaxed)) [[unlikely]]
    knocks = e_.self_->knocks.exchange(0, std::memory_order_acquire);
  for (uint64_t look = watch_ | knocks; look; look &= look - 1) {
    const int q = __builtin_ctzll(look);
    Lane& lane = lanes_[static_cast<size_t>(q)];
    drain(q, knocks & bit(q));
    if (!lane.queue.empty() || !lane.replies.empty()) flush(q);
    if (!lane.moving.empty() || !lane.waiting.empty()) advance_moves(q);
    if (!lane.streams.empty()) advance_stream(q);
  }
}

}  // namespace trireme::local
