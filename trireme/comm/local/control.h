// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trireme/comm/local/types.h"

// The control memory of one rank in one group: what it says to its peers. Each rank writes its own
// (save the doorbell, which peers ring) and reads the others'. Flags are 64-bit numbers that only
// grow and never reset. It lives in a memfd that survivors or the launcher can read after the rank
// was killed, so its layout is versioned.
namespace trireme::local {

constexpr uint64_t kControlMagic = 0x6c7274656d657254;  // "Tremetrl"
constexpr uint32_t kControlVersion = 1;
constexpr int kMaxRanks = 64;  // of one host
constexpr uint64_t kSlots =
    16;  // collectives of one rank under way before a post waits in its queue
constexpr size_t kInlineBytes = 24;          // payload in the flag's own cache line
constexpr size_t kSmallBytes = 8192;         // payload beside the flag: one flag each way
constexpr uint64_t kRecords = 2048;          // calls that the flight recorder keeps
constexpr size_t kSegmentBytes = 256 << 10;  // staged path: half of the staging area
constexpr size_t kSites = 512;

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
  uint64_t spare;
};
static_assert(sizeof(Slot) == 64);
constexpr uint32_t kAddressable = 1;  // peers can reach the buffer at (window, address)

enum class CallState : uint8_t { posted = 1, matched = 2, done = 3, failed = 4 };

// The full descriptor of a call, and the flight recorder's entry: one record serves both. A peer
// may read it while its owner rewrites it for a later call: the owner sets `seq` to 0 first and to
// the call's number last; a reader looks at `seq` before and after.
struct alignas(64) Record {
  Flag seq;
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> posted_ticks;  // Control::born_* turn them into time
  std::atomic<uint64_t> done_ticks;
  std::atomic<OpKind> op;
  std::atomic<DType> dtype;
  std::atomic<RedOp> red;
  std::atomic<CallState> state;
  std::atomic<int32_t> root;  // or the peer of send and recv
  std::atomic<int32_t> tag;
  std::atomic<uint32_t> site;  // index into Control::sites; kSites: there was no room for its name
  uint64_t spare[2];
};
static_assert(sizeof(Record) == 64);

struct Site {
  char text[128];  // file:line, the end of it where it is longer
};

enum class RankState : uint32_t { absent = 0, alive = 1, left = 2, failed = 3 };
/// What a failed rank tells its peers. The last three are facts of the whole group, raised alike on
/// every rank.
enum class FailureKind : uint32_t { other = 0, mismatch = 1, lost = 2, timeout = 3 };

// A byte stream to one peer: the sender writes data and head; the receiver's tail is in its own
// control memory.
struct alignas(64) Channel {
  Flag head;
  alignas(64) Flag tail;  // how much this rank has consumed of the peer's stream to it
};

struct Control {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  int32_t size;
  int32_t pid;
  uint64_t epoch;       // random; one life of one group
  uint64_t bytes;       // of the whole mapping
  uint64_t born_ticks;  // both clocks when this memory was made: a reader measures the rate from
                        // here to now
  int64_t born_ns;
  Flag cpus[16];  // the CPUs that this rank's thread may run on, as a bit mask; set when alive

  alignas(64) std::atomic<RankState> state;
  std::atomic<uint64_t> last_call;  // meaningful once left or failed
  std::atomic<FailureKind> failure_kind;
  char failure[512];  // why, once failed

  alignas(64) Flag done;      // collectives whose data phase this rank is through with
  alignas(64) Flag staged;    // segments that lie ready in its staging area
  alignas(64) Flag reduced;   // segments of which its chunk is reduced
  alignas(64) Flag consumed;  // segments that it has read out of everybody's staging area
  alignas(64) std::atomic<uint32_t> in_data;   // threads: reading or writing peers' memory now
  alignas(64) std::atomic<uint32_t> sleeping;  // waits on `bell`
  std::atomic<uint32_t> bell;                  // peers add one and wake

  alignas(64) Channel channels[kMaxRanks];
  alignas(64) Slot slots[kSlots];
  alignas(64) unsigned char payload[kSlots][kSmallBytes];
  alignas(64) Record records[kRecords];
  std::atomic<uint32_t> site_count;
  Site sites[kSites];
};

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
constexpr size_t kPage = 4096;

// Behind Control: two staging buffers, then one ring of bytes for each peer.
constexpr size_t kChannelBytes = 128 << 10;
constexpr size_t staging_offset() { return round_up(sizeof(Control), kPage); }
constexpr size_t channel_offset(int peer) {
  return staging_offset() + 2 * kSegmentBytes + static_cast<size_t>(peer) * kChannelBytes;
}
constexpr size_t control_bytes(int size) { return channel_offset(size); }

inline unsigned char* staging_of(Control* c, uint64_t segment) {
  return reinterpret_cast<unsigned char*>(c) + staging_offset() + (segment % 2) * kSegmentBytes;
}
inline unsigned char* channel_of(Control* c, int peer) {
  return reinterpret_cast<unsigned char*>(c) + channel_offset(peer);
}

}  // namespace trireme::local
