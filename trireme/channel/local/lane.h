// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// What two workers share for one direction of a channel: a ring of records that the sender writes,
// and the list of blocks that the receiver has let go. The sender creates it, a memfd of a sealed
// size; both map it. Numbers only grow and never wrap.
//
// Whatever the other end may write is read once, and compared with the bounds below before it is
// used: a peer can spoil its own channel and nothing else.
namespace trireme::channel::local {

constexpr uint64_t kLaneMagic = 0x656e616c68635254;  // "TRchlane"
constexpr uint64_t kBellMagic = 0x6c6c656268635254;  // "TRchbell"
constexpr uint32_t kSharedVersion = 1;               // of lanes, doorbells, records and letters

constexpr uint64_t kRingBytes = uint64_t{256} << 10;
constexpr uint64_t kRecordMost = (uint64_t{64} << 10) - 8;  // bytes of one record
constexpr uint32_t kMostLent = 4096;  // blocks of one direction that the receiver holds at a time
constexpr size_t kWhyBytes = 240;

/// In front of each record's bytes, which are padded to 8; no record wraps around the ring's end.
struct RecordHead {
  uint32_t bytes;
  uint32_t kind;
};
static_assert(sizeof(RecordHead) == 8);

// A message is one sequence of bytes (message_format.h), in one record or several of one kind. Long
// messages have a kind of their own, so that short ones fit between their records.
enum RecordKind : uint32_t { kSkip = 0, kShort = 1, kLong = 2 };

struct Lane {
  uint64_t magic;
  uint32_t version;
  uint32_t spare;
  uint64_t bytes;  // of all this

  // The sender writes:
  alignas(64) std::atomic<uint64_t> head;    // bytes put into the ring since it began
  alignas(64) std::atomic<uint32_t> closed;  // nothing more will come
  char why[kWhyBytes];                       // set before `closed`; not terminated
  alignas(
      64) std::atomic<uint32_t> sender_waits;  // for room: ring its doorbell (and set this to 0)

  // The receiver writes:
  alignas(64) std::atomic<uint64_t> taken;     // bytes taken out of the ring
  alignas(64) std::atomic<uint64_t> returned;  // blocks let go since it began
  std::atomic<uint32_t> returns[kMostLent];    // their numbers

  alignas(4096) unsigned char ring[kRingBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(Lane) % 4096 == 0);

/// One for each worker: every peer rings it.
struct BellMemory {
  uint64_t magic;
  uint32_t version;
  uint32_t spare;
  alignas(64) std::atomic<uint32_t> sleeping;  // somebody waits at `bell`; who rings sets it to 0
  std::atomic<uint32_t> bell;                  // a futex
  unsigned char pad[4096 - 64 - 8];
};
static_assert(sizeof(BellMemory) == 4096);

constexpr uint64_t round8(uint64_t n) { return (n + 7) / 8 * 8; }

}  // namespace trireme::channel::local
