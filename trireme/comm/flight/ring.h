// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trireme/comm/flight/words.h"

// The last calls of one rank in one group: plain memory, initially zero, that its rank writes and
// others may read. It is private, or in the control memory of the local engine, so that survivors
// can read that of a killed rank.
namespace trireme::flight {

constexpr uint64_t kRecords = 2048;  // calls kept of each kind
constexpr size_t kSites = 512;

enum class CallState : uint8_t { none = 0, posted = 1, matched = 2, done = 3, failed = 4 };

/// One call. It may be read while its owner overwrites it for a later call: the owner sets `seq` to
/// 0 first and to the call's number last, and a reader checks `seq` before and after.
struct alignas(64) Record {
  std::atomic<uint64_t> seq;
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> posted_ticks;  // Ring::born_* convert them to time
  std::atomic<uint64_t> done_ticks;    // 0: not done
  std::atomic<Collective> op;
  std::atomic<DType> dtype;
  std::atomic<ReduceOp> red;
  std::atomic<CallState> state;
  std::atomic<int32_t> root;  // or the peer of send and recv
  std::atomic<int32_t> tag;
  std::atomic<uint32_t> site;  // index into Ring::sites; kSites: no room for its name
  uint64_t spare[2];
};
static_assert(sizeof(Record) == 64 && std::atomic<uint64_t>::is_always_lock_free);

struct Site {
  char text[128];  // file:line; its end, if it is longer
};

struct Ring {
  uint64_t born_ticks;  // both clocks before the first call: a reader measures the rate of
  int64_t born_ns;      // the ticks from here to now
  std::atomic<uint64_t> pair_count;  // sends and recvs so far
  std::atomic<uint32_t> site_count;
  /// Collective number n of the group is in calls[n % kRecords]; it has the same number on every
  /// rank.
  alignas(64) Record calls[kRecords];
  /// Sends and recvs, numbered by this rank from 1.
  alignas(64) Record pairs[kRecords];
  Site sites[kSites];
};

}  // namespace trireme::flight
