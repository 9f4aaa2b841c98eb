// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trireme/base/events/event_ring.h"
#include "trireme/base/export.h"

namespace trireme {

/// Writes the memory of event_ring.h, from any thread of the process that made it: some tens of
/// nanoseconds an event, most of which is reading the clock, without lock, allocation or system
/// call. A thread claims a lane with its first event (it allocates then, so that the lane is free
/// again when the thread ends); where there is none, events are counted as lost.
class TRIREME_API EventWriter {
 public:
  /// `memory`: of event_bytes(lanes, events), zeros, aligned to 64. Must outlive every thread that
  /// writes.
  EventWriter(void* memory, uint32_t lanes = kEventLanes, uint32_t events = kEventsOfLane);
  EventWriter(const EventWriter&) = delete;

  void write(EventKind kind, uint8_t detail, uint64_t number) noexcept;

  /// What this thread waits for, until end_wait() of the same owner: a text that is cut to
  /// kWaitBytes - 1. A wait inside of another's changes nothing.
  void begin_wait(const void* owner, std::string_view text) noexcept;
  void end_wait(const void* owner) noexcept;

 private:
  EventLane* lane() noexcept;
  EventLane* claim() noexcept;
  void write_wait(EventLane& lane, std::string_view text) noexcept;

  EventHead* head_;
  EventLane* lanes_;
  Event* events_;
};

}  // namespace trireme
