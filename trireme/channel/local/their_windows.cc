// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/their_windows.h"

#include "trireme/base/check.h"

namespace trireme::channel::local {

void Returns::give_back(uint32_t number) {
  if (!mark_.is_here()) return;
  std::lock_guard lock(mutex_);
  lane()->returns[given_ % kMostLent].store(number, std::memory_order_relaxed);
  lane()->returned.store(++given_, std::memory_order_release);
}

void TheirWindows::add(uint32_t window, ::trireme::local::Window memory) {
  check<Corrupt>(!has(window) && windows_.size() < kMostWindows,
                 "it shares window {} as its {}th at a time", window, windows_.size() + 1);
  windows_[window] = std::make_shared<::trireme::local::Window>(std::move(memory));
}

std::shared_ptr<const void> TheirWindows::lend(const LentPlace& place, uint64_t bytes) {
  const auto found = windows_.find(place.window);
  check<Corrupt>(
      found != windows_.end() && place.number < kMostLent &&
          place.offset <= found->second->bytes() && bytes <= found->second->bytes() - place.offset,
      "it lent {} bytes at {} of window {}, where they are not", bytes, place.offset, place.window);
  return {found->second->base() + place.offset,
          [returns = returns_, window = found->second, number = place.number](const void*) {
            returns->give_back(number);
          }};
}

}  // namespace trireme::channel::local
