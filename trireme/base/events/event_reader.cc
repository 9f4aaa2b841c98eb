// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/events/event_reader.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/process/descriptor_socket.h"

namespace trireme {

std::unique_ptr<EventReader> EventReader::open(UniqueFd fd) {
  const std::string fault = fault_in_memory(fd.get());
  check<Corrupt>(fault.empty(), "the memory of a worker's events {}", fault);
  struct stat info {};
  ::fstat(fd.get(), &info);
  const auto size = static_cast<size_t>(info.st_size);
  check<Corrupt>(size >= sizeof(EventHead) &&
                     size <= event_bytes(kMostEventLanes, kMostEvents / kMostEventLanes) * 2,
                 "the memory of a worker's events has {} bytes", size);
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  check<ResourceError>(mapped != MAP_FAILED, "cannot map a worker's events, {} bytes: {}", size,
                       errno_text());
  std::unique_ptr<EventReader> reader(new EventReader);
  reader->fd_ = std::move(fd);
  reader->head_ = static_cast<const EventHead*>(mapped);
  reader->mapped_ = size;
  reader->read_head(mapped, size);
  return reader;
}

EventReader::EventReader(const void* memory, size_t size) { read_head(memory, size); }

EventReader::~EventReader() {
  if (mapped_) ::munmap(const_cast<EventHead*>(head_), mapped_);
}

void EventReader::read_head(const void* memory, size_t size) {
  head_ = static_cast<const EventHead*>(memory);
  // Read once: a worker may write other numbers later.
  const volatile EventHead& head = *head_;
  const uint64_t magic = head.magic;
  const uint32_t version = head.version;
  lanes_count_ = head.lanes, events_of_lane_ = head.events;
  check<Corrupt>(magic == kEventMagic, "the memory of a worker's events does not begin as such");
  check<UsageError>(version <= kEventVersion,
                    "a worker's events are of version {}; this launcher reads up to {}", version,
                    kEventVersion);
  check<Corrupt>(version > 0 && lanes_count_ > 0 && lanes_count_ <= kMostEventLanes &&
                     events_of_lane_ > 1 && std::has_single_bit(events_of_lane_) &&
                     uint64_t{lanes_count_} * events_of_lane_ <= kMostEvents &&
                     size >= event_bytes(lanes_count_, events_of_lane_),
                 "the memory of a worker's events says {} lanes of {} events, in {} bytes",
                 lanes_count_, events_of_lane_, size);
  lanes_ = reinterpret_cast<const EventLane*>(head_ + 1);
  events_ = reinterpret_cast<const Event*>(lanes_ + lanes_count_);
  seen_.assign(lanes_count_, 0);
}

std::vector<SeenEvent> EventReader::take() {
  constexpr auto acquire = std::memory_order_acquire;
  std::vector<SeenEvent> found;
  for (uint32_t l = 0; l < lanes_count_; ++l) {
    const uint64_t count = lanes_[l].count.load(acquire);
    uint64_t& seen = seen_[l];
    if (count == seen) continue;
    if (count < seen) {  // counts only grow: this is not ours
      seen = count;
      continue;
    }
    const uint64_t kept = events_of_lane_;
    const uint64_t first = count - seen > kept ? count - kept : seen;
    const size_t begin = found.size();
    for (uint64_t n = first; n < count; ++n) {
      const Event& e = events_[l * kept + n % kept];
      const uint64_t what = e.what.load(acquire);
      found.push_back({l, static_cast<EventKind>(what & 0xff), static_cast<uint8_t>(what >> 8),
                       e.number.load(acquire), e.time_ns.load(acquire)});
    }
    // Number `now` may be under way, over number now - kept.
    const uint64_t now = lanes_[l].count.load(acquire);
    const uint64_t whole = now >= kept ? now - kept + 1 : 0;
    const uint64_t torn = whole > first ? std::min<uint64_t>(whole - first, count - first) : 0;
    found.erase(found.begin() + static_cast<ptrdiff_t>(begin),
                found.begin() + static_cast<ptrdiff_t>(begin + torn));
    overwritten_ += first - seen + torn;
    seen = count;
  }
  return found;
}

uint64_t EventReader::lost() const {
  return overwritten_ + head_->lost.load(std::memory_order_relaxed);
}

uint64_t EventReader::thread_of(uint32_t lane) const {
  return lane < lanes_count_ ? lanes_[lane].owner.load(std::memory_order_acquire) : 0;
}

std::string EventReader::waits_in(uint32_t lane) const {
  if (lane >= lanes_count_) return "";
  const EventLane& of = lanes_[lane];
  const uint64_t version = of.wait_version.load(std::memory_order_acquire);
  if (version % 2) return "";
  char bytes[kWaitBytes];
  for (size_t i = 0; i < std::size(of.wait); ++i) {
    const uint64_t word = of.wait[i].load(std::memory_order_acquire);
    std::memcpy(bytes + 8 * i, &word, 8);
  }
  if (of.wait_version.load(std::memory_order_relaxed) != version) return "";
  std::string text(bytes, ::strnlen(bytes, sizeof bytes));
  // A worker's words go to a terminal.
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
  return text;
}

}  // namespace trireme
