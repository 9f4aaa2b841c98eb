// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/window_reader.h"

#include <utility>

#include "trireme/base/process/quiet_thread.h"
#include "trireme/base/rank_label.h"

namespace trireme {

WindowReader::~WindowReader() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  for (std::thread& t : threads_)
    if (t.joinable()) t.join();
}

std::span<const uint8_t> WindowReader::next() {
  if (!threads_[0].joinable()) {
    for (Slot& slot : slots_) slot.memory = LargePages(kWindow);
    for (std::thread& t : threads_)
      t = quiet_thread([this, label = thread_rank()] {
        set_thread_rank(label);
        run();
      });
  }
  std::unique_lock lock(mutex_);
  if (taken_ > 0) slot_of(taken_ - 1).full = false;
  const FileWindow& window = windows_.at(taken_);
  Slot& slot = slot_of(taken_++);
  changed_.notify_all();
  changed_.wait(lock, [&] { return slot.full; });
  if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
  return {reinterpret_cast<const uint8_t*>(slot.memory.data()) + window.begin % PartSource::kPage,
          window.size};
}

void WindowReader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    // The slot of the window before the next one is still with who took it.
    const auto may_begin = [&] { return begun_ + 1 < taken_ + slots_.size(); };
    changed_.wait(lock, [&] { return ends_ || begun_ == windows_.size() || may_begin(); });
    if (ends_ || begun_ == windows_.size()) return;
    const FileWindow& window = windows_[begun_];
    Slot& slot = slot_of(begun_++);
    lock.unlock();
    std::exception_ptr error;
    try {
      read(window, slot);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot.error = error;
    slot.full = true;
    changed_.notify_all();
  }
}

void WindowReader::read(const FileWindow& window, Slot& slot) const {
  constexpr uint64_t kPage = PartSource::kPage;
  const uint64_t begin = window.begin / kPage * kPage;
  const uint64_t end = (window.begin + window.size + kPage - 1) / kPage * kPage;
  window.file->read_pages(begin, {reinterpret_cast<uint8_t*>(slot.memory.data()), end - begin},
                          window.begin + window.size - begin);
}

}  // namespace trireme
