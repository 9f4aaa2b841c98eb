// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trireme/comm/flight/ring.h"
#include "trireme/comm/local/types.h"

// The control memory of one rank in one group: what it publishes to its peers. Each rank writes its
// own (except the doorbell, which peers ring) and reads the others'. Flags are 64-bit numbers that
// only grow and are never reset. It is in a memfd that survivors or the launcher can read after the
// rank was killed, so its layout is versioned.
namespace trireme::local {

constexpr uint64_t kControlMagic = 0x6c7274656d657254;  // "Tremetrl"
constexpr uint32_t kControlVersion = 2;
constexpr int kMaxRanks = 64;         // of one host
constexpr uint64_t kSlots = 16;       // collectives of one rank in flight before a post is queued
constexpr size_t kInlineBytes = 24;   // payload in the flag's own cache line
constexpr size_t kSmallBytes = 8192;  // payload next to the flag: one flag each way

using Flag = std::atomic<uint64_t>;
static_assert(Flag::is_always_lock_free);

// One collective as its rank published it. `seq` is stored last.
struct alignas(64) Slot {
  Flag seq;
  uint64_t digest;
  uint64_t address;  // threads: the pointer; processes: offset in the window
  uint32_t window;
  uint32_t flags;
  unsigned char inline_data[kInlineBytes];
  uint64_t each;  // all_to_all: elements of every part, or kUneven
};
static_assert(sizeof(Slot) == 64);
constexpr uint32_t kAddressable = 1;  // peers can reach the buffer at (window, address)
constexpr uint32_t kCarried = 2;      // all_to_all: all that peers need is in the payload
// all_to_all: the payload begins with what this rank sends to each rank and expects from it.
constexpr uint64_t kUneven = ~uint64_t{0};

enum class RankState : uint32_t { absent = 0, alive = 1, left = 2, failed = 3 };
/// What a failed rank reports to its peers. The last three kinds concern the whole group and are
/// raised alike on every rank.
enum class FailureKind : uint32_t { other = 0, mismatch = 1, lost = 2, timeout = 3 };

// Point to point: each ordered pair has a row of packets and a ring of bytes in the sender's
// control memory. `stamp` is the packet's number in its channel, from 1, stored last: the receiver
// polls it, and a short message travels in the same cache line.
enum class PacketKind : uint8_t {
  none,
  eager,     // a whole message: in `data`, or in the ring
  announce,  // a large one: its place; no bytes until a recv takes it
  join,      // the receiver's answer: where to write, both ends copy blocks
  stream,    // the receiver's answer: send it through the ring
  fin,       // the receiver's answer: it has read all
  chunk      // a piece of a streamed message, in the ring
};
constexpr size_t kPackets = 128;      // of one pair in flight
constexpr size_t kPacketBytes = 40;   // payload in the packet's own cache line
constexpr size_t kEagerBytes = 8192;  // larger messages are announced
constexpr size_t kChunkBytes = 32 << 10;
constexpr size_t kMoves = 4;  // large messages of one pair in flight at a time

struct alignas(64) Packet {
  Flag stamp;
  uint64_t count;  // elements; of a chunk bytes
  int32_t tag;
  PacketKind kind;
  DType dtype;
  uint16_t site;  // of the send, in its rank's Control::sites
  union {
    unsigned char data[kPacketBytes];
    struct {
      uint64_t at;    // in the ring
      uint32_t recv;  // chunk: the receiver's number for the message
    } ring;
    struct {
      uint64_t address;  // in the window, or in the sender's process
      uint32_t window;
      uint32_t flags;
      uint32_t send;  // the sender's number for the message
    } announce;
    struct {
      uint64_t address;  // join: of the receiver's buffer
      uint64_t base;     // join: what Move::done was before the first block
      uint32_t window;
      uint32_t send;
      uint32_t recv;
      uint32_t move;
    } reply;
  };
};
static_assert(sizeof(Packet) == 64);

// The blocks of one large message, which both ends claim and copy. Owned by the receiver; the
// numbers only grow.
struct Move {
  Flag next;  // claimed
  Flag done;  // copied
};

// What a rank publishes for a peer that sends to it.
struct alignas(64) Channel {
  Flag taken;     // packets that it has read
  Flag released;  // bytes of eager messages taken by recvs
  alignas(64) Move moves[kMoves];
};

// What a rank that has waited for long publishes about it, in the control memory of its root group,
// which all its groups share (deadlock.cc). Its owner writes; `version` is odd meanwhile.
struct Board {
  alignas(64) Flag version;  // changes with the content, and with every byte moved
  Flag beat;                 // counts looks at the peers: a busy or stopped rank makes none
  Flag waits_for;            // bit q: root rank q must make a call first; 0: unknown
  Flag text[32];             // which call, of which group, where
  // Ranks that this rank found to wait for each other for ever. `found` is 0 while it is written.
  Flag found;                     // bit q: root rank q is one of them
  Flag found_version[kMaxRanks];  // the versions of their boards then
  Flag found_text[128];
};

struct Control {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  int32_t size;
  int32_t pid;
  uint64_t generation;  // random; one life of one group
  uint64_t bytes;       // of the whole mapping
  uint64_t membarrier;  // 1: this process uses membarrier(2); set before peers map this
  Flag cpus[16];  // the CPUs that this rank's thread may run on, as a bit mask; set when alive

  alignas(64) std::atomic<RankState> state;
  std::atomic<uint64_t> last_call;  // meaningful once left or failed
  std::atomic<FailureKind> failure_kind;
  char failure[512];  // why, once failed

  Flag posted;                // collectives, published or not; set if this rank waits for long
  alignas(64) Flag done;      // collectives whose data phase this rank has completed
  alignas(64) Flag staged;    // segments that are ready in its staging area
  alignas(64) Flag reduced;   // segments whose chunk it has reduced
  alignas(64) Flag consumed;  // segments that it has read from every staging area
  alignas(64) std::atomic<uint32_t> in_data;   // threads: reading or writing peers' memory now
  alignas(64) std::atomic<uint32_t> sleeping;  // waits on `bell`
  std::atomic<uint32_t> bell;                  // peers add one and wake
  Flag knocks;                                 // bit q: rank q's channel to this rank is full
  uint64_t probe_address;  // holds probe_value() in this process; stored before the first packet

  alignas(64) Channel channels[kMaxRanks];
  alignas(64) Slot slots[kSlots];
  alignas(64) unsigned char payload[kSlots][kSmallBytes];
  alignas(64) Board board;  // used in a root group only
  /// The full descriptors of calls, which are also the flight recorder.
  alignas(64) flight::Ring ring;
};

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
constexpr size_t kPage = 4096;

// Behind Control: packets and a ring of bytes for each peer, then two staging buffers. Packets
// start as zeros.
constexpr size_t kChannelBytes = 128 << 10;
constexpr size_t kPairBytes = kPackets * sizeof(Packet) + kChannelBytes;
/// The size of one staging buffer. Two ranks alternate out of their caches; with more ranks, which
/// may share CPUs, larger segments make them wait for each other less often.
constexpr size_t segment_bytes(int size) {
  return size <= 2 ? 256 << 10 : size <= 4 ? 512 << 10 : 1024 << 10;
}
constexpr size_t channel_offset(int peer) {
  return round_up(sizeof(Control), kPage) + static_cast<size_t>(peer) * kPairBytes;
}
constexpr size_t staging_offset(int size) { return round_up(channel_offset(size), kPage); }
constexpr size_t control_bytes(int size) { return staging_offset(size) + 2 * segment_bytes(size); }

inline unsigned char* staging_of(Control* c, uint64_t segment) {
  return reinterpret_cast<unsigned char*>(c) + staging_offset(c->size) +
         (segment % 2) * segment_bytes(c->size);
}
inline Packet* packets_of(Control* c, int peer) {
  return reinterpret_cast<Packet*>(reinterpret_cast<unsigned char*>(c) + channel_offset(peer));
}
inline unsigned char* channel_of(Control* c, int peer) {
  return reinterpret_cast<unsigned char*>(packets_of(c, peer) + kPackets);
}

}  // namespace trireme::local
