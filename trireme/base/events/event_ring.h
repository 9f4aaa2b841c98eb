// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// What the threads of a process write down, in memory that its launcher holds, too: it is there
// when the process is stopped, hangs or has been killed. Every thread has a lane, which it alone
// writes: its events in a ring, and what it waits for. A format of its own (tests/formats), since
// launcher and worker may be of different builds; all numbers are in the machine's byte order.
//
//   EventHead · lanes × EventLane · lanes × events × Event
namespace trireme {

constexpr uint64_t kEventMagic = 0x73746e6576457254;  // "TrEvents"
constexpr uint32_t kEventVersion = 1;
constexpr uint32_t kEventLanes = 16;        // what this build makes
constexpr uint32_t kEventsOfLane = 256;     // a power of two
constexpr uint32_t kMostEventLanes = 1024;  // what a reader takes
constexpr uint64_t kMostEvents = 1 << 20;   // of all lanes

/// The numbers are in the memory: new ones come at the end.
enum class EventKind : uint8_t {
  none = 0,
  progress = 1,  // detail: an Activity; number: the step
  alive = 2,     // the work that the last `progress` names goes on
};

/// Words, so that neither end ever holds half of one. They may be overwritten while they are read:
/// the reader looks at EventLane::count afterwards, and drops what may have been.
struct Event {
  std::atomic<uint64_t> time_ns;  // of the steady clock
  std::atomic<uint64_t> what;     // kind, and above it 8 bits of detail
  std::atomic<uint64_t> number;
  std::atomic<uint64_t> spare;
};
static_assert(sizeof(Event) == 32 && std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t event_what(EventKind kind, uint8_t detail) {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(detail) << 8;
}

struct alignas(64) EventLane {
  std::atomic<uint64_t> owner;         // the thread's number (gettid); 0: free for a new one
  std::atomic<uint64_t> count;         // events ever; number n lies at n % events
  std::atomic<uint64_t> wait_version;  // odd while `wait` is written
  std::atomic<uint64_t> wait[29];      // the call that it waits in, as text; zeros: none
};
static_assert(sizeof(EventLane) == 256);
constexpr size_t kWaitBytes = sizeof(EventLane::wait);

/// Constant from when the launcher gets it, but for `lost`.
struct alignas(64) EventHead {
  uint64_t magic;
  uint32_t version;
  uint32_t lanes;
  uint32_t events;  // of each lane
  int32_t pid;      // as the process itself sees it
  uint64_t born_ns;
  std::atomic<uint64_t> lost;  // events of threads that found no free lane
};
static_assert(sizeof(EventHead) == 64);

constexpr size_t event_bytes(uint64_t lanes, uint64_t events) {
  return sizeof(EventHead) + lanes * (sizeof(EventLane) + events * sizeof(Event));
}

}  // namespace trireme
