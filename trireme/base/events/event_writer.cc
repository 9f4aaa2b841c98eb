// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/events/event_writer.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/clock.h"

namespace trireme {
namespace {

/// The lane of this thread, given back when the thread ends.
struct OwnLane {
  const EventWriter* of = nullptr;
  EventLane* lane = nullptr;
  const void* waits = nullptr;  // the owner of the wait that is written down

  ~OwnLane() { give_back(); }
  void give_back() {
    if (lane) lane->owner.store(0, std::memory_order_release);
    lane = nullptr;
  }
};
thread_local OwnLane own_lane;

}  // namespace

EventWriter::EventWriter(void* memory, uint32_t lanes, uint32_t events)
    : head_(static_cast<EventHead*>(memory)),
      lanes_(reinterpret_cast<EventLane*>(head_ + 1)),
      events_(reinterpret_cast<Event*>(lanes_ + lanes)) {
  head_->magic = kEventMagic;
  head_->version = kEventVersion;
  head_->lanes = lanes;
  head_->events = events;
  head_->pid = ::getpid();
  head_->born_ns = static_cast<uint64_t>(now_ns());
}

EventLane* EventWriter::lane() noexcept {
  if (own_lane.of == this && own_lane.lane) [[likely]]
    return own_lane.lane;
  return claim();
}

EventLane* EventWriter::claim() noexcept {
  own_lane.give_back();
  own_lane.of = this;
  own_lane.waits = nullptr;
  const auto me = static_cast<uint64_t>(::syscall(SYS_gettid));
  for (uint32_t i = 0; i < head_->lanes; ++i) {
    uint64_t none = 0;
    if (lanes_[i].owner.load(std::memory_order_relaxed) != 0 ||
        !lanes_[i].owner.compare_exchange_strong(none, me, std::memory_order_acq_rel))
      continue;
    own_lane.lane = &lanes_[i];
    write_wait(lanes_[i], "");
    return own_lane.lane;
  }
  return nullptr;
}

// Each store of the event is a release, so that a reader that sees one of them also sees the count
// before it, and knows which event was being overwritten.
void EventWriter::write(EventKind kind, uint8_t detail, uint64_t number) noexcept {
  EventLane* const lane = this->lane();
  if (!lane) {
    head_->lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const uint64_t n = lane->count.load(std::memory_order_relaxed);
  const auto index = static_cast<size_t>(lane - lanes_);
  Event& event = events_[index * head_->events + n % head_->events];
  event.time_ns.store(static_cast<uint64_t>(now_ns()), std::memory_order_release);
  event.what.store(event_what(kind, detail), std::memory_order_release);
  event.number.store(number, std::memory_order_release);
  lane->count.store(n + 1, std::memory_order_release);
}

void EventWriter::begin_wait(const void* owner, std::string_view text) noexcept {
  EventLane* const lane = this->lane();
  if (!lane || (own_lane.waits && own_lane.waits != owner)) return;
  own_lane.waits = owner;
  write_wait(*lane, text);
}

void EventWriter::end_wait(const void* owner) noexcept {
  if (own_lane.of != this || own_lane.waits != owner || !own_lane.lane) return;
  own_lane.waits = nullptr;
  write_wait(*own_lane.lane, "");
}

void EventWriter::write_wait(EventLane& lane, std::string_view text) noexcept {
  char bytes[kWaitBytes] = {};
  std::memcpy(bytes, text.data(), std::min(text.size(), sizeof bytes - 1));
  const uint64_t version = lane.wait_version.load(std::memory_order_relaxed);
  lane.wait_version.store(version + 1, std::memory_order_relaxed);
  const size_t words = text.empty() ? 1 : std::size(lane.wait);
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + 8 * i, 8);
    lane.wait[i].store(word, std::memory_order_release);  // never before the odd version
  }
  lane.wait_version.store(version + 2, std::memory_order_release);
}

}  // namespace trireme
