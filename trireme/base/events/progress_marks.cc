// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/events/progress_marks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/events/event_writer.h"
#include "trireme/base/events/handover.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/base/process/process_mark.h"

namespace trireme {
namespace {

/// Process-wide by nature: a launcher watches processes. Never freed, as threads may mark until the
/// end.
struct EventsOfProcess {
  EventsOfProcess(void* memory, UniqueFd held) : writer(memory), socket(std::move(held)) {}
  EventWriter writer;
  ProcessMark process;
  bool is_watched() const {
    const Activity now = at.load(std::memory_order_relaxed);
    return now != Activity::none && now != Activity::done;
  }
  UniqueFd socket;  // closed by the end of the process, which the launcher sees
  std::atomic<Activity> at{Activity::none};
  std::atomic<int64_t> step{0};
};

EventsOfProcess* hand_over(const char* path) {
  UniqueFd socket = connect_for_descriptors(path);
  if (!socket) {
    log_debug("no launcher reads events at {}: {}", path, errno_text());
    return nullptr;
  }
  constexpr size_t kBytes = event_bytes(kEventLanes, kEventsOfLane);
  UniqueFd memory(::memfd_create("trireme-events", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // All of its pages, now: later there may be none.
  if (!memory || ::fallocate(memory.get(), 0, 0, kBytes) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    log_debug("no memory for events: {}", errno_text());
    return nullptr;
  }
  void* mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto events = std::make_unique<EventsOfProcess>(mapped, std::move(socket));
  EventHandover message;
  if (const char* rank = std::getenv("RANK")) message.rank = std::atoi(rank);
  if (!send_descriptor(events->socket.get(), &message, sizeof message, memory.get())) {
    log_debug("the launcher does not take this process's events: {}", errno_text());
    ::munmap(mapped, kBytes);
    return nullptr;
  }
  return events.release();
}

std::atomic<EventsOfProcess*> of_process{nullptr};

/// Null: there is no launcher that reads them.
EventsOfProcess* make_events() noexcept {
  static EventsOfProcess* const made = []() -> EventsOfProcess* {
    const int before = errno;
    EventsOfProcess* events = nullptr;
    try {
      const char* path = std::getenv(kEventsVariable);
      if (path && *path) events = hand_over(path);
    } catch (const std::exception& error) {
      log_debug("no events: {}", error.what());
    }
    errno = before;
    of_process.store(events, std::memory_order_release);
    return events;
  }();
  return made;
}

EventsOfProcess* events_if_made() noexcept {
  EventsOfProcess* const events = of_process.load(std::memory_order_acquire);
  return events && events->process.is_here() ? events : nullptr;
}

}  // namespace

const char* name_of(Activity at) noexcept {
  constexpr const char* kNames[] = {"none", "build", "load", "step", "evaluate", "save", "done"};
  static_assert(std::size(kNames) == kActivities);
  const auto i = static_cast<size_t>(at);
  return i < std::size(kNames) ? kNames[i] : "?";
}

void mark_progress(Activity at, int64_t step) noexcept {
  EventsOfProcess* events = of_process.load(std::memory_order_acquire);
  if (!events) events = make_events();
  if (!events || !events->process.is_here()) return;
  events->at.store(at, std::memory_order_relaxed);
  events->step.store(step, std::memory_order_relaxed);
  events->writer.write(EventKind::progress, static_cast<uint8_t>(at), static_cast<uint64_t>(step));
}

void mark_alive() noexcept {
  if (EventsOfProcess* events = events_if_made()) events->writer.write(EventKind::alive, 0, 0);
}

namespace {
thread_local bool in_background = false;
}  // namespace

void work_in_background() noexcept { in_background = true; }

bool marks_progress() noexcept {
  EventsOfProcess* events = events_if_made();
  return events && events->is_watched();
}

ActivityScope::ActivityScope(Activity at, int64_t step) noexcept {
  const EventsOfProcess* events = events_if_made();
  if (!events || !events->is_watched()) return;
  before_ = events->at.load(std::memory_order_relaxed);
  step_before_ = events->step.load(std::memory_order_relaxed);
  mark_progress(at, step);
}

ActivityScope::~ActivityScope() {
  if (before_ != Activity::none) mark_progress(before_, step_before_);
}

void WaitMark::begin(std::string_view text) noexcept {
  EventsOfProcess* events = events_if_made();
  if (!events || in_background) return;
  said_ = true;
  events->writer.begin_wait(this, text);
}

void WaitMark::end() noexcept {
  if (!said_) return;
  said_ = false;
  if (EventsOfProcess* events = events_if_made()) events->writer.end_wait(this);
}

}  // namespace trireme
