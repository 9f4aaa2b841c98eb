// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/events/event_ring.h"
#include "trireme/base/export.h"
#include "trireme/base/fd.h"

namespace trireme {

struct SeenEvent {
  uint32_t lane = 0;
  EventKind kind = EventKind::none;  // may be one that this build does not know
  uint8_t detail = 0;
  uint64_t number = 0;
  uint64_t time_ns = 0;
};

/// Reads the memory of event_ring.h beside those that write it, who may be hostile: whatever they
/// write, at whatever moment, nothing outside of the memory is read, and a look takes bounded time.
/// One thread at a time.
class TRIREME_API EventReader {
 public:
  /// A descriptor of a worker's. Corrupt says what is wrong with it; UsageError: of a newer
  /// version; ResourceError.
  static std::unique_ptr<EventReader> open(UniqueFd fd);
  /// The same of memory that outlives this object.
  EventReader(const void* memory, size_t size);
  ~EventReader();
  EventReader(const EventReader&) = delete;

  /// What has come since the last look, in the order of each lane.
  std::vector<SeenEvent> take();
  /// Events that no look has seen: overwritten before one came, or of threads without a lane.
  uint64_t lost() const;
  /// What the thread of this lane waits in, one line without control characters; "": nothing.
  std::string waits_in(uint32_t lane) const;
  uint32_t lanes() const { return lanes_count_; }
  /// The thread that has it; 0: none.
  uint64_t thread_of(uint32_t lane) const;

 private:
  EventReader() = default;
  void read_head(const void* memory, size_t size);

  UniqueFd fd_;
  size_t mapped_ = 0;  // 0: not ours
  const EventHead* head_ = nullptr;
  const EventLane* lanes_ = nullptr;
  const Event* events_ = nullptr;
  // What the head said at first: it is not asked again.
  uint32_t lanes_count_ = 0, events_of_lane_ = 0;
  std::vector<uint64_t> seen_;  // of each lane
  uint64_t overwritten_ = 0;
};

}  // namespace trireme
