// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/local/engine.h"
#include "trireme/comm/local/p2p_match.h"

// Point-to-point messages of one rank. Small messages are eager: they stay in the channel of their
// pair until the receiver reads it, and in its private memory until a recv takes them. Large ones
// are announced and wait in the sender's buffer. Once a recv has taken one, bytes take the shortest
// path that the two buffers allow. Which can be reached by the peer:
//   both              both ends copy blocks, whichever is free: the receiver reads, the sender
//                     writes
//   the sender's      the receiver reads all of it
//   the receiver's    the sender writes all of it
//   neither           through the ring of bytes, both ends copying at the same time; if ranks share
//                     CPUs, the receiver reads a very large one with process_vm_readv if permitted
// p2p_match.h decides which messages go to which recv; control.h defines the packets.
namespace trireme::local {

class Engine::Pairs {
 public:
  explicit Pairs(Engine& engine);

  Ticket post(const Call& call);
  bool is_complete(const Ticket& ticket) const;
  int source(const Ticket& ticket) const;
  /// Whether there may be something to do.
  bool active() const {
    return watch_ || ready_.size() || e_.self_->knocks.load(std::memory_order_relaxed);
  }
  void advance();
  /// Checks only, for a moment, whether the packet that this rank waits for has arrived.
  void look();
  bool idle() const { return under_way_ == 0; }
  bool owes_bells() const { return bells_ != 0; }
  void ring_bells();

  /// Returns the Call of a ticket that is in flight, else nullptr.
  const Call* call_of(const Ticket& ticket) const;
  /// Returns the peer that this call waits for; kAnySource if any peer will do.
  int peer_of(const Ticket& ticket) const;
  /// Returns the peer that must make a call before this one can continue, because nothing has
  /// arrived for a recv or no recv has taken a send. -1 if there is none, or any peer will do.
  int waits_for(const Ticket& ticket) const;
  /// Grows with every packet either way and every call that comes or goes.
  uint64_t events() const;
  /// Returns a call that peers depend on, so that this rank cannot leave; nullptr if there is none.
  const Call* unfinished() const;

 private:
  enum class State : uint8_t { free, queued, announced, posted, matched, moving, streaming };
  struct Request {
    Call call;
    Ticket ticket;
    int peer = 0;
    State state = State::free;
    uint64_t record = 0;  // of the flight recorder
    bool told = false;    // recv: the sender has the reply
    uint32_t move = 0;
    uint64_t base = 0, end = 0;  // of Move::done
    size_t moved = 0;            // streaming
    uint64_t address = 0;        // matched: where the sender's buffer is
    uint32_t window = 0, flags = 0, send = 0;
    size_t bytes() const { return call.count * size_of(call.dtype); }
  };
  struct Message {  // arrived before its recv
    int source = 0;
    Packet packet{};
    std::unique_ptr<unsigned char[]> bytes;
  };
  struct Reply {
    PacketKind kind = PacketKind::none;
    uint64_t address = 0, base = 0;
    uint32_t window = 0, send = 0, recv = 0, move = 0;
  };
  enum class Peek : uint8_t { unknown, works, refused };
  struct Lane {  // to and from one peer
    Lane() : space(kChannelBytes) {}
    DoneNumbers sends, recvs;
    int requests = 0;  // in flight with this peer
    // out
    uint64_t sent = 0, taken = 0;  // packets; taken: as last seen
    RingSpace space;
    uint64_t end_of[kPackets] = {};    // of a packet's bytes in the ring
    uint64_t eager = 0, released = 0;  // bytes; released: as last seen
    bool knocked = false;
    RingQueue<Reply> replies;     // those that found no room
    RingQueue<uint32_t> queue;    // sends that found no room, in order
    RingQueue<uint32_t> streams;  // the first of them is using the ring
    // in
    uint64_t received = 0, released_here = 0;
    size_t unrung = 0;            // bytes and packets taken since the sender's bell was last rung
    RingQueue<uint32_t> waiting;  // matched, until one of the moves is free
    uint32_t moves = 0;           // bit m: move m is in use
    Peek peek = Peek::unknown;
    std::vector<uint32_t> moving;  // either direction
  };

  uint64_t bit(int q) const { return uint64_t{1} << q; }
  void update_watch(int q);
  const Request* find(const Ticket& ticket) const;
  uint32_t new_request(const Call& call, const Ticket& ticket);
  void attach(uint32_t id, int peer);
  void finish(uint32_t id);

  // Packets out (p2p_packets.cc).
  /// How much a message uses of the memory that the receiver lends its sender.
  static uint64_t eager_cost(size_t bytes) { return sizeof(Packet) + bytes; }
  Packet* room(int q, size_t bytes, bool reply, unsigned char*& ring);
  void commit(int q, Packet& p);
  bool out_of_room(int q);
  enum class Put : uint8_t { done, announce, no_room };
  Put put_message(int q, const Call& call);
  bool put_announcement(int q, uint32_t id);
  bool put_reply(int q, const Reply& reply);
  void answer(int q, const Reply& reply);
  void flush(int q);

  // Packets in.
  void drain(int q, bool knocked);
  void take(int q, Packet& p);
  void deliver(uint32_t id, int q, const Packet& p, const unsigned char* bytes);
  void check_same(const Request& r, int q, const Packet& p);
  const unsigned char* bytes_of(int q, const Packet& p, size_t bytes);
  void release(int q, size_t bytes);
  Request& request_at(uint32_t id, int q, State state);

  // Large messages (p2p_move.cc).
  void begin(uint32_t id, int q, const Packet& announcement);
  bool move(uint32_t id);
  void join(int q, const Packet& p);
  void copy_blocks(Request& r, const unsigned char* from, unsigned char* to);
  bool peek_all(Request& r);
  bool read_remote(int q, void* to, uint64_t address, size_t bytes);
  void advance_moves(int q);
  void advance_stream(int q);
  void take_chunk(int q, const Packet& p);
  void enter_data(const Request& r);

  Engine& e_;
  std::vector<Lane> lanes_;
  MatchBook book_;
  std::vector<Request> requests_;
  std::vector<uint32_t> free_requests_;
  std::deque<Message> messages_;
  std::vector<uint32_t> free_messages_;
  RingQueue<std::pair<uint32_t, uint32_t>> ready_;  // recvs and the messages that waited for them
  uint64_t under_way_ = 0;                          // requests
  uint64_t watch_ = 0;  // bit q: something may arrive from rank q, or waits for room there
  uint64_t bells_ = 0;  // bit q: rank q may sleep and has not been notified
  int any_posted_ = 0;  // recvs of any source without a message yet
  DoneNumbers any_;
  std::vector<uint8_t> any_source_;  // of the last recvs of any source, by number
  uint64_t any_last_ = 0;
  uint64_t probe_ = 0;  // read by peers to test whether they may read this process
};

}  // namespace trireme::local
