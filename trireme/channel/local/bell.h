// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "trireme/channel/local/lane.h"
#include "trireme/comm/local/arena.h"
#include "trireme/comm/local/waiter.h"

namespace trireme::channel::local {

/// A worker's doorbell, its own or a peer's. Any thread.
class Bell {
 public:
  explicit Bell(::trireme::local::Window memory) : memory_(std::move(memory)) {}

  /// Call it after what the sleeper is to see has been stored. It makes a system call only if
  /// somebody sleeps, and one for each sleep however many ring.
  void ring() {
    ::trireme::local::full_fence();  // what was stored first, then `sleeping`
    BellMemory* m = at();
    if (m->sleeping.load(std::memory_order_relaxed) == 0) return;
    if (m->sleeping.exchange(0, std::memory_order_relaxed) == 0) return;  // another one rings
    m->bell.fetch_add(1, std::memory_order_relaxed);
    ::trireme::local::futex_wake(&m->bell);
  }

  /// Sleeps until somebody rings, for at most `ms`, unless `ready()`. For the owner, on one thread
  /// at a time. A peer may wake it for nothing, or keep it asleep until `ms` have passed.
  template <class Ready>
  void sleep_unless(const Ready& ready, int ms) {
    BellMemory* m = at();
    const uint32_t seen = m->bell.load(std::memory_order_relaxed);
    m->sleeping.store(1, std::memory_order_relaxed);
    ::trireme::local::full_fence();  // `sleeping` first, then what others store
    if (!ready()) ::trireme::local::futex_wait(&m->bell, seen, ms);
    m->sleeping.store(0, std::memory_order_relaxed);
  }

 private:
  BellMemory* at() const { return reinterpret_cast<BellMemory*>(memory_.base()); }

  ::trireme::local::Window memory_;
};

}  // namespace trireme::channel::local
